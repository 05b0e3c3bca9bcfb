"""What happened is told from the log, whatever was asked for and whatever the tables say."""

from __future__ import annotations

import pytest

from coordinator import log
from coordinator.db import chain as mirror
from coordinator.db.work import SubmissionRow
from coordinator.tasks import expire_leases
from protocol.amount import format_amount
from protocol.errors import NotFound
from protocol.reasons import Outcome, RejectReason
from protocol.trace import Trace
from protocol.wire import ZERO_HASH
from tests.unit.coordinator.conftest import Site, number_hash

FORCED = "0x" + "77" * 32


def trace(site: Site, subject: str) -> Trace:
    return site.client().trace(subject)


def test_a_submission_and_its_task_are_told_alike(site: Site) -> None:
    submission_id = site.accept()
    found = trace(site, submission_id)
    (row,) = site.client().submissions()
    assert (found.subject, found.submission_id) == (submission_id, submission_id)
    assert found.what_happened.status == "accepted" and found.what_happened.reason is None
    assert (
        f"{row.num_units} units, {format_amount(10 * row.num_units)} credits for {row.provider}"
        in found.what_happened.sentence
    )
    task_id = found.stages[0].id
    assert task_id is not None and task_id != submission_id
    of_task = trace(site, task_id)
    assert (of_task.what_happened, of_task.stages) == (found.what_happened, found.stages)
    assert (of_task.subject, of_task.submission_id) == (task_id, submission_id)


def test_a_rejection_has_the_reason_of_the_api_and_of_the_log(site: Site) -> None:
    submission_id = site.submit()
    assert trace(site, submission_id).what_happened.status == "pending"
    site.judge(submission_id, Outcome.DROP, RejectReason.LOGPROB_MISMATCH)
    told = trace(site, submission_id).what_happened
    assert told.reason == site.client().submission(submission_id).reason == "logprob_mismatch"
    assert told.sentence.startswith(f"Rejected for logprob_mismatch ({RejectReason.LOGPROB_MISMATCH.hint}): ")


def test_tables_that_say_something_else_change_no_word(site: Site) -> None:
    submission_id = site.submit()
    site.judge(submission_id, Outcome.DROP, RejectReason.LOGPROB_MISMATCH)
    before = trace(site, submission_id).what_happened
    with site.coordinator.writing() as session:
        row = session.get_one(SubmissionRow, submission_id)
        row.reason, row.standing = None, "accepted"
    assert trace(site, submission_id).what_happened == before
    assert site.client().submission(submission_id).reason is None


def test_a_trained_submission_names_its_step_and_the_batch_has_a_trace_too(site: Site) -> None:
    submission_id = site.accept()
    trainer = site.client(site.trainer)
    offer = trainer.lease_batch(1)
    assert offer is not None
    assert trace(site, submission_id).what_happened.sentence.endswith("then handed to the trainer in step 1.")
    trainer.acknowledge_batch(offer.number)
    assert trace(site, submission_id).what_happened.sentence.endswith("then trained on in step 1.")
    of_batch = trace(site, offer.groups_root)
    assert of_batch.what_happened.status == "consumed" and of_batch.submission_id is None


def test_a_lease_for_which_nothing_came_is_told_by_its_task(site: Site) -> None:
    task_id = site.lease().message.id(site.domain)
    assert trace(site, task_id).what_happened.status == "leased"
    site.mine(seconds=10**6)
    expire_leases(site.coordinator)
    found = trace(site, task_id)
    assert found.what_happened.status == "expired" and found.submission_id is None
    assert [(stage.stage, stage.status) for stage in found.stages] == [("task", "expired")]


def test_what_was_forced_in_and_refused_is_told_with_its_reason(site: Site) -> None:
    arguments = {"node": site.node.address, "submission_id": FORCED, "epoch": "1"}
    site.mirror(
        mirror.ChainEvent(
            block=1,
            log_index=0,
            time=1,
            transaction_hash=number_hash(5),
            contract="ledger",
            name="IntakeForced",
            subject=FORCED,
            arguments=arguments,
        )
    )
    with site.coordinator.writing() as session:
        log.append(session, "chain.IntakeForced", FORCED, 5, {"block": 1, "arguments": arguments})
    assert trace(site, FORCED).what_happened.status == "forced"
    with site.coordinator.writing() as session:
        log.append(session, "submission.refused", FORCED, 6, {"node": site.node.address, "reason": "file_missing"})
    found = trace(site, FORCED)
    assert (found.what_happened.status, found.what_happened.reason) == ("refused", "file_missing")
    assert found.submission_id is None and [stage.status for stage in found.stages] == ["IntakeForced"]


@pytest.mark.parametrize("subject", [ZERO_HASH, "0x" + "99" * 32])
def test_what_the_log_has_nothing_about_is_not_found(site: Site, subject: str) -> None:
    site.accept()
    with pytest.raises(NotFound):
        trace(site, subject)
