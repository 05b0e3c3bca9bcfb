"""Submissions whose file comes in pieces, for lines that don't carry it at once.

    PUT …/pieces?offset=0 ─▶ {num_bytes} ─▶ PUT …/pieces?offset=num_bytes ─▶ … ─▶ PUT …/{id} without a body: taken in

In: a piece with the envelope of the whole, signed by its node. Out: how much is here: whoever was cut off asks with any
offset, and goes on where the answer says. Nothing is kept but for an open lease of the sender, and no more than the
envelope says and the rules allow. What is whole is judged as a file that comes at once (`coordinator/intake.py`).
"""

from __future__ import annotations

from sqlalchemy import select

from coordinator.context import Coordinator
from coordinator.db.work import SubmissionRow, TaskRow
from coordinator.door import counting_refusals
from coordinator.intake import check_claim, check_envelope
from coordinator.refusals import Door
from coordinator.rules import rules_document
from protocol.api import Standing, SubmissionEnvelope, UploadState
from protocol.errors import Rejected
from protocol.reasons import RejectReason


def admit_piece(
    coordinator: Coordinator, node: str, submission_id: str, envelope: SubmissionEnvelope, offset: int, piece: bytes
) -> UploadState:
    """Keep a piece that goes on where the file ends, and say where that is. Raises Rejected or SignatureInvalid."""
    with counting_refusals(coordinator, Door.SUBMISSIONS, node):
        message = check_claim(coordinator, node, submission_id, envelope)
        with coordinator.reading() as session:
            if session.get(SubmissionRow, submission_id) is not None:
                return UploadState(num_bytes=envelope.num_bytes)
            task = check_envelope(coordinator, session, message)
            most = rules_document(session, task.rules_hash).max_file_bytes
        _check_size(envelope.num_bytes, most, offset + len(piece))
        return UploadState(num_bytes=coordinator.pieces.append(task.task_id, submission_id, offset, piece))


def _check_size(num_bytes: int, most: int, end: int) -> None:
    if num_bytes > most:
        raise Rejected(RejectReason.TOO_LARGE, "bytes", value=str(num_bytes), threshold=str(most))
    if end > num_bytes:
        raise Rejected(RejectReason.FILE_MISMATCH, "end of the piece", value=str(end), threshold=str(num_bytes))


def sweep_pieces(coordinator: Coordinator) -> None:
    """Stage of the loop: what came for leases that aren't open any more goes."""
    kept = coordinator.pieces.tasks()
    if kept:
        with coordinator.reading() as session:
            leased = session.scalars(
                select(TaskRow.task_id).where(TaskRow.task_id.in_(kept), TaskRow.standing == Standing.LEASED)
            )
            over = kept - set(leased)
        for task_id in over:
            coordinator.pieces.drop(task_id)
