"""Rollouts to a signed submission: what the node stands for with its stake.

In: a task's work and its rollouts. Out: the outbox entry and the file's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api import SubmissionEnvelope
from protocol.canonical import hex0x, sha256
from protocol.rollouts import Rollout, content_hash, write_rollouts
from protocol.wire import Signed, Submission
from worker.membership import Membership
from worker.outbox import Entry
from worker.work import Work


def seal(work: Work, rollouts: Sequence[Rollout], membership: Membership) -> tuple[Entry, bytes]:
    """The signed submission of these rollouts, ready for the outbox, with its file."""
    file = write_rollouts(work.header, rollouts)
    task = work.task
    submission = Submission(
        pool_id=task.pool_id,
        policy_version=task.policy_version,
        node=task.node,
        counter=task.counter,
        rules_hash=task.rules_hash,
        content_hash=content_hash(work.header, rollouts),
    )
    envelope = SubmissionEnvelope(
        submission=Signed[Submission].by(membership.signer, submission, membership.domain),
        file_sha256=hex0x(sha256(file)),
        num_bytes=len(file),
    )
    entry = Entry(
        task_id=work.task_id,
        task=work.signed_task,
        submission_id=submission.id(membership.domain),
        envelope=envelope,
    )
    return entry, file
