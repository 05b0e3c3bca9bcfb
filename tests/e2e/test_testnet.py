"""Whole testnets, real processes and a real chain: cheats are caught, kills lose nothing.

Two runs are shared by the tests of this file, one with every kind of cheat, one in which each role is
killed and started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.api import LogEntry
from protocol.clock import SystemClock
from testnet.closing import Findings, close
from testnet.plan import CHEATS, Plan
from testnet.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.xdist_group("e2e")]


@dataclass(frozen=True)
class Finished:
    """A run that is done, with what was found while its chain was still up."""

    run: Run
    findings: Findings
    entries: list[LogEntry]

    def of_type(self, name: str) -> list[LogEntry]:
        return [entry for entry in self.entries if entry.event["type"] == name]


def finish(plan: Plan, folder: Path, watch: Callable[[Run], None] = lambda run: None) -> Finished:
    run = Run(plan, folder, SystemClock())
    try:
        run.start()
        run.run_until_done(lambda progress: watch(run))
        return Finished(run, close(run, SystemClock()), list(run.coordinator.all_entries()))
    finally:
        run.stop()


@pytest.fixture(scope="module")
def with_cheats(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Two honest workers and one of each cheat."""
    plan = Plan(num_steps=2, num_workers=2, cheats=tuple(CHEATS), groups_per_step=8)
    return finish(plan, tmp_path_factory.mktemp("cheats"))


class Killer:
    """Kills each role once, at a moment when it has work at hand, and starts it again."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.due: dict[str, Callable[[Run], bool]] = {
            "worker-0": lambda run: run.observer.tally.leased >= 2,
            "verifier-0": lambda run: run.observer.tally.accepted >= 1,
            "coordinator": lambda run: run.observer.tally.accepted >= 3,
            "trainer": lambda run: run.observer.tally.step >= 1,
        }

    def __call__(self, run: Run) -> None:
        for name, is_due in self.due.items():
            if name not in self.killed and is_due(run):
                run.processes[name].kill()
                run.processes[name].start()
                self.killed.append(name)
                return


@pytest.fixture(scope="module")
def with_kills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Finished, Killer]]:
    killer = Killer()
    plan = Plan(num_steps=3, num_workers=2, cheats=(), groups_per_step=8)
    yield finish(plan, tmp_path_factory.mktemp("kills"), killer), killer


def test_each_cheat_is_rejected_from_its_first_submission_on_and_slashed(with_cheats: Finished) -> None:
    run = with_cheats.run
    expected = {
        "wrong-model": {"toploc_mismatch", "sampling_mismatch"},
        "forged-proof": {"proof_malformed", "toploc_mismatch"},
        "false-reward": {"reward_mismatch"},
        "cherry-pick": {"sampling_mismatch"},
    }
    for cheater in run.accounts.cheaters:
        node = run.observer.tally.node(cheater.node.address)
        assert node.accepted == 0, cheater.cheat
        assert node.rejected, cheater.cheat
        assert set(node.rejected) <= expected[str(cheater.cheat)]
    assert sorted(with_cheats.findings.slashed) == sorted(c.owner.address for c in run.accounts.cheaters)


def test_no_honest_submission_is_rejected(with_cheats: Finished) -> None:
    for provider in with_cheats.run.accounts.providers:
        if provider.cheat is None:
            node = with_cheats.run.observer.tally.node(provider.node.address)
            assert node.accepted > 0
            assert not node.rejected


def test_the_audit_holds_on_accepted_and_slashed_submissions_and_on_every_wei(with_cheats: Finished) -> None:
    failed = [report for report in with_cheats.findings.reports if report.exit_code]
    assert not failed, "\n".join(line for report in failed for line in report.lines())
    assert len(with_cheats.findings.reports) >= 1 + len(CHEATS) + 1


def test_no_process_of_a_run_is_left(with_cheats: Finished) -> None:
    assert not [process.name for process in with_cheats.run.processes.values() if process.is_running()]


@pytest.mark.parametrize("role", ["worker-0", "verifier-0", "coordinator", "trainer"])
def test_the_run_goes_on_after_a_kill(with_kills: tuple[Finished, Killer], role: str) -> None:
    finished, killer = with_kills
    assert role in killer.killed
    assert finished.run.processes[role].restarts == 1
    assert finished.run.observer.tally.policy_version == finished.run.plan.num_steps


def test_kills_lose_double_and_overpay_nothing(with_kills: tuple[Finished, Killer]) -> None:
    finished, _ = with_kills
    received = [entry.subject for entry in finished.of_type("submission.received")]
    settled = [e.subject for t in ("submission.accepted", "submission.rejected") for e in finished.of_type(t)]
    assert sorted(received) == sorted(settled)
    assert len(set(received)) == len(received)
    assert not finished.of_type("submission.rejected")
    used = Counter((e.subject, e.event["data"].get("group")) for e in finished.of_type("group.batched"))
    assert all(count == 1 for count in used.values())
    steps = [entry.event["data"]["step"] for entry in finished.of_type("batch.consumed")]
    assert steps == sorted(set(steps))
    assert all(report.exit_code == 0 for report in finished.findings.reports)


def test_the_log_has_no_gap(with_kills: tuple[Finished, Killer]) -> None:
    assert [entry.index for entry in with_kills[0].entries] == list(range(len(with_kills[0].entries)))
