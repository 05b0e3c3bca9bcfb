"""The door: a signed file for a leased task comes in, a signed receipt goes out.

    envelope   signature, id, lease, deadline, rules, registration   `check_envelope`
    bytes      size and SHA-256                                      `_check_bytes`
    content    schema, layout, bounds, proofs' form, digest          `coordinator/uploads.py`
    keep       blob, then rows and the `submission.received` leaf in one transaction

In: an envelope, its signer, the file. Out: a `Receipt` with the epoch that will anchor it; or Rejected, and
nothing has changed, but that the reason is kept where the submission is forced in on chain (`coordinator/forced.py`).
The same submission again gets the same receipt. No bytes at all stand for those that came in pieces
(`coordinator/partial.py`).
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.context import Coordinator
from coordinator.db.work import GroupRow, SubmissionRow, TaskRow
from coordinator.door import counting_refusals
from coordinator.forced import note_refusal
from coordinator.nodes import provider_of
from coordinator.pool import chain_time, check_in_office, indexed_block, pool_record
from coordinator.refusals import Door
from coordinator.rules import rules_document
from coordinator.standing import check_lease_open, move
from coordinator.uploads import Upload, read_upload
from protocol.api import Standing, SubmissionEnvelope
from protocol.canonical import hex0x, sha256
from protocol.errors import Rejected
from protocol.reasons import RejectReason
from protocol.rules import Rules
from protocol.wire import Receipt, Signed, Submission, Task


def admit(
    coordinator: Coordinator, node: str, submission_id: str, envelope: SubmissionEnvelope, file: bytes
) -> Signed[Receipt]:
    """Take in what `node` hands in. Raises Rejected or SignatureInvalid."""
    with counting_refusals(coordinator, Door.SUBMISSIONS, node):
        return _admit_or_note(coordinator, node, submission_id, envelope, file)


def _admit_or_note(
    coordinator: Coordinator, node: str, submission_id: str, envelope: SubmissionEnvelope, file: bytes
) -> Signed[Receipt]:
    message = check_claim(coordinator, node, submission_id, envelope)
    try:
        return _admit(coordinator, node, submission_id, envelope, message, file)
    except Rejected as refusal:
        note_refusal(coordinator, submission_id, refusal)
        raise


def check_claim(coordinator: Coordinator, node: str, submission_id: str, envelope: SubmissionEnvelope) -> Submission:
    """What `node` has signed, if the path names it. Raises Rejected or SignatureInvalid."""
    message = envelope.submission.check(node, coordinator.domain)
    if message.node != node or message.id(coordinator.domain) != submission_id:
        raise Rejected(RejectReason.FILE_MISMATCH, "the path's id isn't that of the signed submission")
    return message


def _admit(
    coordinator: Coordinator,
    node: str,
    submission_id: str,
    envelope: SubmissionEnvelope,
    message: Submission,
    file: bytes,
) -> Signed[Receipt]:
    with coordinator.reading() as session:
        if known := session.get(SubmissionRow, submission_id):
            return Signed[Receipt].model_validate(known.signed_receipt)
        task = check_envelope(coordinator, session, message)
        rules = rules_document(session, task.rules_hash)
    file = file or _assembled(coordinator, task.task_id, submission_id, envelope)
    _check_bytes(envelope, file, rules)
    upload = read_upload(file, rules, Signed[Task].model_validate(task.signed_task).message, task.task_id)
    if upload.content_hash != message.content_hash:
        raise Rejected(
            RejectReason.FILE_MISMATCH, "content digest", value=upload.content_hash, threshold=message.content_hash
        )
    with coordinator.reading() as session:
        _check_new(session, submission_id, node, upload)
    coordinator.blobs.put(file)
    with coordinator.writing() as session:
        if known := session.get(SubmissionRow, submission_id):
            return Signed[Receipt].model_validate(known.signed_receipt)
        task = check_envelope(coordinator, session, message)
        _check_new(session, submission_id, node, upload)
        return _keep(coordinator, session, task, submission_id, envelope, upload)


def _assembled(coordinator: Coordinator, task_id: str, submission_id: str, envelope: SubmissionEnvelope) -> bytes:
    """What came in pieces; if it is all there and wrong, it goes, to be sent anew."""
    file = coordinator.pieces.read(task_id, submission_id)
    if len(file) >= envelope.num_bytes and hex0x(sha256(file)) != envelope.file_sha256:
        coordinator.pieces.drop(task_id)
    return file


def check_envelope(coordinator: Coordinator, session: Session, message: Submission) -> TaskRow:
    """The open lease that this submission is for. Raises Rejected."""
    task = session.scalar(
        select(TaskRow).where(
            TaskRow.pool_id == message.pool_id,
            TaskRow.policy_version == message.policy_version,
            TaskRow.node == message.node,
            TaskRow.counter == message.counter,
        )
    )
    if task is None:
        raise Rejected(
            RejectReason.LEASE_UNKNOWN,
            f"pool {message.pool_id}, policy version {message.policy_version}, counter {message.counter}",
        )
    check_lease_open(task, chain_time(session))
    if message.rules_hash != task.rules_hash:
        raise Rejected(
            RejectReason.RULES_CHANGED, "rules of the lease", value=message.rules_hash, threshold=task.rules_hash
        )
    pool = pool_record(session, coordinator.config.pool_id)
    check_in_office(coordinator, pool)
    provider_of(session, pool, message.node)
    return task


def _check_bytes(envelope: SubmissionEnvelope, file: bytes, rules: Rules) -> None:
    if len(file) > rules.max_file_bytes:
        raise Rejected(RejectReason.TOO_LARGE, "bytes", value=str(len(file)), threshold=str(rules.max_file_bytes))
    if len(file) != envelope.num_bytes:
        raise Rejected(RejectReason.FILE_MISMATCH, "bytes", value=str(len(file)), threshold=str(envelope.num_bytes))
    if (found := hex0x(sha256(file))) != envelope.file_sha256:
        raise Rejected(RejectReason.FILE_MISMATCH, "SHA-256", value=found, threshold=envelope.file_sha256)


def _check_new(session: Session, submission_id: str, node: str, upload: Upload) -> None:
    """The node hasn't handed in these rows for another task."""
    same = select(SubmissionRow.submission_id).where(
        SubmissionRow.node == node,
        SubmissionRow.rows_hash == upload.rows_hash,
        SubmissionRow.submission_id != submission_id,
    )
    if earlier := session.scalar(same.limit(1)):
        raise Rejected(RejectReason.DUPLICATE, f"the same rows are in {earlier}")


def _keep(
    coordinator: Coordinator,
    session: Session,
    task: TaskRow,
    submission_id: str,
    envelope: SubmissionEnvelope,
    upload: Upload,
) -> Signed[Receipt]:
    message = Receipt(
        submission_id=submission_id,
        received_block=indexed_block(session) or 0,
        include_by_epoch=log.open_epoch(session),
    )
    receipt = Signed[Receipt].by(coordinator.signer, message, coordinator.domain)
    submission = _row(task, submission_id, envelope, upload, receipt, chain_time(session))
    submission.log_index = move(
        session,
        task,
        Standing.RECEIVED,
        submission,
        node=task.node,
        provider=task.provider,
        policy_version=task.policy_version,
        counter=task.counter,
        content_hash=upload.content_hash,
        file_sha256=envelope.file_sha256,
        num_rollouts=upload.num_rollouts,
        num_units=upload.num_units,
    )
    session.add(submission)
    session.flush()  # groups point at it
    session.add_all(_group_rows(submission, upload))
    return receipt


def _row(
    task: TaskRow,
    submission_id: str,
    envelope: SubmissionEnvelope,
    upload: Upload,
    receipt: Signed[Receipt],
    now: int,
) -> SubmissionRow:
    return SubmissionRow(
        submission_id=submission_id,
        task_id=task.task_id,
        provider=task.provider,
        node=task.node,
        policy_version=task.policy_version,
        content_hash=upload.content_hash,
        rows_hash=upload.rows_hash,
        signed_submission=envelope.submission.model_dump(mode="json"),
        signed_receipt=receipt.model_dump(mode="json"),
        file_sha256=envelope.file_sha256,
        num_bytes=envelope.num_bytes,
        num_rollouts=upload.num_rollouts,
        num_units=upload.num_units,
        received_time=now,
        epoch=receipt.message.include_by_epoch,
    )


def _group_rows(submission: SubmissionRow, upload: Upload) -> list[GroupRow]:
    return [
        GroupRow(
            submission_id=submission.submission_id,
            group=group.number,
            policy_version=submission.policy_version,
            has_variance=group.has_variance,
            mean_reward=group.mean_reward,
            num_tokens=group.num_tokens,
        )
        for group in upload.groups
    ]
