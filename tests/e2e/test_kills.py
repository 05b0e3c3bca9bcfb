"""A run in which each role is killed once, with work at hand, and started again: nothing lost, doubled, paid twice."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protocol.cli import run as run_command
from protocol.clock import SystemClock
from testnet import run as run_module
from testnet.closing import Findings, close
from testnet.hints import live_commands, program
from testnet.plan import Plan
from testnet.profile import AMOUNTS
from testnet.run import Run
from testnet.summary import summarise
from testnet.table import Progress

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.xdist_group("e2e")]

LOOK_SECONDS = 0.02
"""What a role has at hand may be done with within a tenth of a second."""
NUM_STEPS = 3
PLAN = Plan(num_steps=NUM_STEPS, num_workers=2, cheats=(), groups_per_step=8)


def has_a_promise(run: Run) -> bool:
    """Whether verifier-0 has given a verdict that it hasn't revealed."""
    store = run.run_dir / "data" / "verifier-0" / "verifier.sqlite3"
    if not (run.observer.tally.accepted and store.exists()):
        return False
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        return bool(db.execute("SELECT COUNT(*) FROM verdict WHERE NOT revealed").fetchone()[0])


def is_half_way(run: Run) -> bool:
    """Whether the coordinator has accepted work, and has more to lease and to have judged."""
    return bool(run.observer.tally.accepted and run.observer.tally.batches < NUM_STEPS)


def has_a_batch(run: Run) -> bool:
    """Whether the trainer was given a batch that it hasn't acknowledged, after it has taken a step."""
    return 1 <= run.observer.tally.step < run.observer.tally.batches


@dataclass
class Killer:
    """Kills each role once, as soon as it is due; the run starts it again."""

    run: Run
    killed: list[str] = field(default_factory=list)
    due: dict[str, Callable[[Run], bool]] = field(
        default_factory=lambda: {
            "verifier-0": has_a_promise,
            "coordinator": is_half_way,
            "trainer": has_a_batch,
        }
    )

    def __call__(self, progress: Progress) -> None:
        for name, is_due in self.due.items():
            if name not in self.killed and is_due(self.run):
                self.kill(name)
                return

    def kill(self, name: str) -> None:
        pid = self.run.processes[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.killed.append(name)

    def watch_for_a_task(self, stop: threading.Event) -> None:
        """Kills worker-0 with its second task at hand, which it may have for some hundredths of a second only."""
        leases, seen = self.run.run_dir / "data" / "worker-0" / "leases", set[str]()
        while not stop.wait(0.002):
            here = {path.name for path in leases.glob("0x*.json")}
            seen |= here
            if here and len(seen) >= 2:
                self.kill("worker-0")
                return


@dataclass(frozen=True)
class Finished:
    """A run that is done, with what was found, and said by the commands, while its chain was still up."""

    run: Run
    killed: list[str]
    findings: Findings
    history: Any
    log: list[dict[str, Any]]
    answers: dict[str, tuple[int, str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, read_history: Callable[[Path], Any]) -> Finished:
    run = Run(PLAN, tmp_path_factory.mktemp("kills"), SystemClock())
    killer, stop = Killer(run), threading.Event()
    watch = threading.Thread(target=killer.watch_for_a_task, args=(stop,))
    watch.start()
    try:
        run.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_module, "LOOK_SECONDS", LOOK_SECONDS)
            run.run_until_done(killer)
        findings = close(run, run.clock)
        answers = {line: answer_of(line) for line in commands(run)}
        log = [entry.event for entry in run.coordinator.all_entries()]
    finally:
        stop.set()
        watch.join()
        run.stop()
    return Finished(run, killer.killed, findings, read_history(run.run_dir), log, answers)


def commands(run: Run) -> list[str]:
    accepted = run.observer.tally.accepted_ids[0]
    return live_commands(accepted, run.site.coordinator_url, run.node.url, run.genesis.contracts.ledger)


def answer_of(line: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exit_code = run_command(shlex.split(line)[len(shlex.split(program())) :])
    return exit_code, out.getvalue()


@pytest.mark.parametrize("role", ["worker-0", "verifier-0", "coordinator", "trainer"])
def test_the_run_goes_on_after_a_kill(finished: Finished, role: str) -> None:
    assert finished.killed.count(role) == 1
    assert finished.run.processes[role].restarts == 1
    summary = summarise(finished.run, finished.findings, [0.4, 0.4], 1.0)
    assert summary.passed, summary.checks
    assert sorted(summary.restarted) == sorted(finished.killed)
    assert (summary.steps, summary.policy_version, summary.rejected, summary.audit) == (NUM_STEPS, NUM_STEPS, 0, "ok")


def test_each_lease_ends_as_one_submission_or_is_handed_back(finished: Finished) -> None:
    history = finished.history
    leased = [event["subject"] for event in history.of("task.leased")]
    received = [event["data"]["task_id"] for event in history.of("submission.received")]
    given_back = [event["subject"] for event in history.of("task.abandoned")]
    assert len(set(leased)) == len(leased)
    assert sorted(received + given_back) == sorted(leased)
    assert not history.of("task.expired")
    counters: dict[tuple[str, int], list[int]] = {}
    for event in history.of("task.leased"):
        data = event["data"]
        counters.setdefault((data["node"], data["policy_version"]), []).append(data["counter"])
    assert all(given == list(range(len(given))) for given in counters.values())


def test_each_submission_is_accepted_and_paid_once(finished: Finished) -> None:
    history = finished.history
    accepted = history.of("submission.accepted")
    received = {event["subject"]: event["data"] for event in history.of("submission.received")}
    assert sorted(event["subject"] for event in accepted) == sorted(received)
    assert not history.of("submission.rejected")
    missed = {event["subject"] for event in history.of("draw.missed")}  # a verdict that comes late isn't paid
    for event in accepted:
        data, units = event["data"], received[event["subject"]]["num_units"]
        payments = {account: int(wei) for account, wei in data["payments"]}
        assert payments.pop(data["provider"]) == units * AMOUNTS["price"] == int(data["amount_wei"])
        verdicts = list(payments.values())
        assert verdicts == [units * AMOUNTS["verify_price"]] or (not verdicts and event["subject"] in missed)
    assert finished.findings.paid_wei + finished.findings.owed_wei <= history.payments_wei()


def test_each_draw_is_judged_once(finished: Finished) -> None:
    draws = Counter(
        (event["subject"], event["data"]["round"], event["data"]["draw"])
        for event in finished.history.of("verdict.revealed")
    )
    assert set(draws.values()) == {1}


def test_each_group_is_in_one_batch_and_each_step_is_taken_once(finished: Finished) -> None:
    history = finished.history
    batches = [event["data"] for event in history.of("batch.leased")]
    groups = [tuple(group) for batch in batches for group in batch["groups"]]
    assert len(set(groups)) == len(groups) == NUM_STEPS * PLAN.groups_per_step
    unused = {(event["subject"], event["data"]["group"]) for event in history.of("group.unused")}
    assert not unused & set(groups)
    steps = list(range(1, NUM_STEPS + 1))
    assert [batch["step"] for batch in batches] == steps
    assert [event["data"]["step"] for event in history.of("batch.consumed")] == steps


def test_each_policy_version_is_published_once(finished: Finished) -> None:
    history, versions = finished.history, list(range(NUM_STEPS + 1))
    assert [int(e["data"]["arguments"]["version"]) for e in history.of("chain.WeightsPublished")] == versions
    assert [event["data"]["policy_version"] for event in history.of("weights.announced")] == versions
    lines = (finished.run.run_dir / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))


def test_the_log_was_never_rewritten(finished: Finished) -> None:
    assert finished.history.events == finished.log[: len(finished.history.events)]
    assert [event["index"] for event in finished.log] == list(range(len(finished.log)))
    epochs = [int(e["data"]["arguments"]["epoch"]) for e in finished.history.of("chain.EpochCommitted")]
    assert epochs == list(range(len(epochs)))


def test_the_audit_holds_on_every_wei(finished: Finished) -> None:
    failed = [report for report in finished.findings.reports if report.exit_code]
    assert not failed, "\n".join(line for report in failed for line in report.lines())


def test_the_printed_commands_work_while_the_run_is_up(finished: Finished) -> None:
    trace, audit, money = finished.answers.values()
    assert (trace[0], audit[0], money[0]) == (0, 0, 0)
    assert "indexed to block" in trace[1]
    assert "ok (anchored: chain 31337" in audit[1]
    assert "✓ paid" in money[1]


def test_nothing_is_left_running(finished: Finished, left_behind: Callable[[Path], list[str]]) -> None:
    assert not left_behind(finished.run.run_dir)
