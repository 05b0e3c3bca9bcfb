"""Verdicts: committed blindly, anchored, then revealed.

    commit   a seat's Merkle root over its salted verdicts     becomes the `verdict.committed` leaf
    anchor   the epoch that holds this leaf is on chain        nobody could see another's verdict before
    reveal   verdict, salt and path against that root          becomes the `verdict.revealed` leaf

In: signed messages of validators. Out: `CommitmentRow` and `VerdictRow` rows; or Rejected, and nothing has
changed. The same message again is answered like the first time. Settling is `coordinator/settle.py`.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.context import Coordinator
from coordinator.db.chain import Seat
from coordinator.db.work import CommitmentRow, Draw, ReauditRow, SubmissionRow, TaskRow, VerdictRow
from coordinator.draws import OPEN, REVEALED
from coordinator.pool import chain_time
from coordinator.stamps import keep_reviews, reviews_in
from protocol.api import VerdictReveal
from protocol.canonical import canonical_hash
from protocol.draw import REAUDIT_ROUND
from protocol.errors import Rejected, VerificationFailed
from protocol.merkle.commitment import verify_commitment
from protocol.reasons import RejectReason, fits
from protocol.wire import ZERO_HASH, Signed, Verdict, VerdictCommitment

MAX_PARTS = 256
"""Commitments of one seat in one epoch."""


def commit(coordinator: Coordinator, validator: str, signed: Signed[VerdictCommitment]) -> None:
    """Take a seat's commitment. Raises Rejected or SignatureInvalid."""
    message = signed.check(validator, coordinator.domain)
    with coordinator.writing() as session:
        _check_seat(coordinator, session, message, validator)
        known = session.get(CommitmentRow, (message.epoch, message.seat, message.part))
        if known is not None:
            _check_same(known.root == message.root, f"seat {message.seat} has committed to another root as this part")
            return
        _check_epoch(session, message)
        log_index = log.append(
            session,
            "verdict.committed",
            ZERO_HASH,
            chain_time(session),
            {"seat": message.seat, "epoch": message.epoch, "part": message.part, "root": message.root},
        )
        session.add(
            CommitmentRow(
                epoch=message.epoch,
                seat=message.seat,
                part=message.part,
                root=message.root,
                signed_commitment=signed.model_dump(mode="json"),
                log_index=log_index,
            )
        )


def reveal(coordinator: Coordinator, validator: str, opened: VerdictReveal) -> None:
    """Take a revealed verdict. Raises Rejected, SignatureInvalid or VerificationFailed."""
    message = opened.verdict.check(validator, coordinator.domain)
    with coordinator.writing() as session:
        draw = _drawn(session, message, validator)
        known = session.get(VerdictRow, (draw.submission_id, draw.round, draw.draw))
        if known is not None:
            same = Signed[Verdict].model_validate(known.signed_verdict).message == message
            _check_same(same, f"seat {message.seat} has given another verdict on this submission")
            return
        _check_verdict(coordinator, session, opened)
        _check_commitment(coordinator, session, opened)
        _keep(session, draw, opened)


def _check_same(same: bool, detail: str) -> None:
    if not same:
        raise Rejected(RejectReason.DUPLICATE, detail)


def _check_seat(coordinator: Coordinator, session: Session, message: VerdictCommitment, validator: str) -> None:
    seat = session.get(Seat, (coordinator.config.pool_id, message.seat))
    if message.pool_id != coordinator.config.pool_id or seat is None or seat.validator != validator:
        raise Rejected(
            RejectReason.NOT_REGISTERED, f"seat {message.seat} of pool {message.pool_id} isn't {validator}'s"
        )


def _check_epoch(session: Session, message: VerdictCommitment) -> None:
    """Made for the open epoch; the one before is let in, since an epoch may close while the message travels."""
    current = log.open_epoch(session)
    if not current - 1 <= message.epoch <= current:
        raise Rejected(
            RejectReason.VALUE_OUT_OF_BOUNDS,
            "commit under the open epoch",
            value=str(message.epoch),
            threshold=str(current),
        )
    if message.part >= MAX_PARTS:
        raise Rejected(RejectReason.VALUE_OUT_OF_BOUNDS, "part", value=str(message.part), threshold=str(MAX_PARTS - 1))


def _drawn(session: Session, message: Verdict, validator: str) -> Draw:
    """The seat's turn that this verdict is for."""
    draw = session.scalar(
        select(Draw).where(
            Draw.submission_id == message.submission_id, Draw.round == message.round, Draw.seat == message.seat
        )
    )
    if draw is None or draw.validator != validator:
        raise Rejected(
            RejectReason.NOT_REGISTERED, f"seat {message.seat} of {validator} wasn't drawn for {message.submission_id}"
        )
    return draw


def _check_verdict(coordinator: Coordinator, session: Session, opened: VerdictReveal) -> None:
    """The verdict speaks of this submission, under its rules, with the evidence that it names."""
    message = opened.verdict.message
    submission = session.get_one(SubmissionRow, message.submission_id)
    task = session.get_one(TaskRow, submission.task_id)
    expected = (coordinator.config.pool_id, _drawing_epoch(session, message, submission), task.rules_hash)
    if (message.pool_id, message.epoch, message.rules_hash) != expected:
        raise VerificationFailed("a verdict names another pool, epoch or rules than its submission", str(expected))
    if opened.evidence.submission_id != message.submission_id:
        raise VerificationFailed("the evidence is about another submission", opened.evidence.submission_id)
    if canonical_hash(opened.evidence.as_json()) != message.evidence_hash:
        raise VerificationFailed("the evidence isn't what the verdict was signed over", message.evidence_hash)
    _check_outcome(message)


def _drawing_epoch(session: Session, message: Verdict, submission: SubmissionRow) -> int:
    """The epoch whose beacon drew the verdict's seat."""
    if message.round == REAUDIT_ROUND:
        return session.get_one(ReauditRow, message.submission_id).epoch
    return submission.epoch


def _check_outcome(message: Verdict) -> None:
    """Outcome and reason go together."""
    if not fits(message.outcome, message.reason):
        raise VerificationFailed(
            "a verdict's reason doesn't fit its outcome", f"outcome {message.outcome}, reason {message.reason}"
        )


def _check_commitment(coordinator: Coordinator, session: Session, opened: VerdictReveal) -> None:
    message = opened.verdict.message
    row = session.get(CommitmentRow, (opened.commitment_epoch, message.seat, opened.part))
    if row is None:
        raise Rejected(
            RejectReason.LEASE_UNKNOWN,
            f"seat {message.seat} has no commitment {opened.part} in epoch {opened.commitment_epoch}",
        )
    anchor = log.epoch_of_leaf(session, row.log_index)
    if anchor is None or anchor.block is None:
        raise Rejected(RejectReason.RATE_LIMITED, "the epoch that holds this commitment isn't anchored yet")
    digest = message.id(coordinator.domain)
    if not verify_commitment(row.root, message.submission_id, digest, opened.salt, opened.path):
        raise VerificationFailed("a verdict isn't the one that was committed to", f"root {row.root}")


def _keep(session: Session, draw: Draw, opened: VerdictReveal) -> None:
    message = opened.verdict.message
    reason = message.reject_reason
    in_time = draw.state == OPEN
    reviews = reviews_in(session, draw.validator, opened)
    log_index = log.append(
        session,
        "verdict.revealed",
        message.submission_id,
        chain_time(session),
        {
            "round": draw.round,
            "draw": draw.draw,
            "seat": draw.seat,
            "validator": draw.validator,
            "in_time": in_time,
            "outcome": message.outcome,
            "reason": reason.value if reason else None,
            "evidence_hash": message.evidence_hash,
            "stamp_reviews": [[v, r.round, r.agrees] for v, some in reviews.items() for r in some],
        },
    )
    session.add(
        VerdictRow(
            submission_id=draw.submission_id,
            round=draw.round,
            draw=draw.draw,
            seat=draw.seat,
            validator=draw.validator,
            outcome=message.outcome,
            reason=reason.value if reason else None,
            signed_verdict=opened.verdict.model_dump(mode="json"),
            evidence=opened.evidence.as_json(),
            opening=opened.model_dump(mode="json", include={"commitment_epoch", "part", "salt", "path"}),
            in_time=in_time,
            log_index=log_index,
        )
    )
    draw.state = REVEALED
    keep_reviews(session, draw.submission_id, draw.validator, draw.seat, reviews)
