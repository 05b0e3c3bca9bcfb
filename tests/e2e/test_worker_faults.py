"""Fifty random faults over a run: each task ends once, no outbox is corrupt, and earnings are what the ledger says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.clock import SystemClock
from protocol.reasons import RejectReason
from testnet import process
from testnet.closing import Findings, close
from testnet.plan import Plan
from tests.e2e.worker_faults import Fault, Trouble, TroubledRun, faults, run_through
from worker.outbox import REFUSED, Answer, Outbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.xdist_group("e2e")]

SEED, NUM_FAULTS, MOST_SECONDS = 10, 50, 1500.0
PLAN = Plan(seed=SEED, num_steps=200, num_workers=3, cheats=(), groups_per_step=32, timeout_seconds=MOST_SECONDS)
ENDS = ("task.expired", "task.abandoned", "task.reorged")


@dataclass(frozen=True)
class Troubled:
    """What was left when all was over, while the chain was still up."""

    done: list[Fault]
    restarted: list[str]
    findings: Findings
    history: Any
    answers: dict[str, list[Answer]]
    """By node."""
    pending: int
    leftovers: list[str]


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory, read_history: Callable[[Path], Any]) -> Troubled:
    run = TroubledRun(PLAN, tmp_path_factory.mktemp("faults"), SystemClock())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "MOST_RESTARTS", NUM_FAULTS)
        try:
            run.start()
            trouble = Trouble(run, faults(SEED, NUM_FAULTS, list(run.lines), can_fill=bool(run.disks)))
            run_through(run, trouble, run.clock.now() + MOST_SECONDS)
            boxes = {each.node.address: run.run_dir / "data" / each.name for each in run.accounts.providers}
            opened = {node: Outbox(folder / "outbox", give_up_seconds=3600) for node, folder in boxes.items()}
            answers = {node: outbox.answers() for node, outbox in opened.items()}
            pending = sum(len(outbox.pending()) for outbox in opened.values())
            kept = [folder / name for folder in boxes.values() for name in ("outbox", "leases")]
            files = [path.name for folder in kept for path in folder.iterdir()]
            leftovers = [name for name in files if not name.endswith(".answer.json") and name != REFUSED]
            run.plan = PLAN.model_copy(update={"num_steps": run.observer.tally.policy_version})
            findings = close(run, run.clock)
        finally:
            run.stop()
    return Troubled(trouble.done, run.restarted, findings, read_history(run.run_dir), answers, pending, leftovers)


def test_every_kind_of_fault_was_there(troubled: Troubled) -> None:
    kinds = Counter(fault.kind for fault in troubled.done)
    assert sum(kinds.values()) == NUM_FAULTS
    assert {"kill", "stop", "coordinator", "slow", "cut"} <= set(kinds), kinds
    assert len(troubled.restarted) >= kinds["kill"] + kinds["coordinator"]


def test_each_task_was_handed_in_once_or_its_lease_ended(troubled: Troubled) -> None:
    history = troubled.history
    leased = [event["subject"] for event in history.of("task.leased")]
    ends = Counter(event["data"]["task_id"] for event in history.of("submission.received"))
    ends.update(event["subject"] for event in history.of(*ENDS))
    assert len(set(leased)) == len(leased)
    assert ends == Counter(leased), "each lease has one end"
    counters: dict[tuple[str, int], list[int]] = {}
    for event in history.of("task.leased"):
        data = event["data"]
        counters.setdefault((data["node"], data["policy_version"]), []).append(data["counter"])
    assert all(given == list(range(len(given))) for given in counters.values())


def test_each_submission_has_its_receipt_in_the_outbox_that_sent_it(troubled: Troubled) -> None:
    for node, answers in troubled.answers.items():
        received = sorted(event["subject"] for event in troubled.history.by(node, "submission.received"))
        receipts = sorted(answer.submission_id for answer in answers if answer.receipt is not None)
        assert receipts == received
        assert {answer.refusal for answer in answers if answer.receipt is None} <= {RejectReason.LEASE_EXPIRED}
        assert len(received) > 3


def test_no_outbox_is_corrupt_or_holds_anything_back(troubled: Troubled) -> None:
    assert troubled.pending == 0
    assert troubled.leftovers == []


def test_all_work_was_good_and_paid_once(troubled: Troubled) -> None:
    history = troubled.history
    received = sorted(event["subject"] for event in history.of("submission.received"))
    assert sorted(event["subject"] for event in history.of("submission.accepted")) == received
    assert not history.of("submission.rejected")


def test_earnings_are_what_the_ledger_says(troubled: Troubled) -> None:
    failed = [report for report in troubled.findings.reports if report.exit_code]
    assert not failed, "\n".join(line for report in failed for line in report.lines())
    assert troubled.findings.paid_wei + troubled.findings.owed_wei <= troubled.history.payments_wei()
