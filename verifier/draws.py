"""Whether an assignment is what the chain drew, so that the coordinator can't choose who judges whom.

In: an `Assignment` from the coordinator, the chain, the checked log. Out: where and when the submission was
logged, or VerificationFailed with what the coordinator got wrong. For round 1 the log must have settled the submission,
and the beacon of the epoch that anchors this must have picked it.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.api import Assignment
from protocol.draw import REAUDIT_ROUND, DrawnSeat, drawn_seats, is_reaudited
from protocol.errors import VerificationFailed
from protocol.wire import Submission
from verifier.chain import PoolChain
from verifier.history import History, Received


def can_check(assignment: Assignment, history: History) -> bool:
    """Whether the checked log reaches far enough; a log that is behind catches up with the next head."""
    return history.num_epochs > assignment.epoch


def check_assignment(assignment: Assignment, validator: str, chain: PoolChain, history: History) -> Received:
    """Raises VerificationFailed unless `beacon(epoch)` gave this submission to this seat of `validator`."""
    received = _check_received(assignment, chain, history)
    if drawing_epoch(received, assignment.round, history) != assignment.epoch:
        raise VerificationFailed(
            "an assignment names another epoch than the log",
            f"epoch {assignment.epoch} in round {assignment.round} of {assignment.submission_id}; logged: {received}",
        )
    beacon_hash = chain.epoch_beacon(assignment.epoch)
    if beacon_hash is None or assignment.beacon_hash != beacon_hash:
        raise VerificationFailed(
            "an assignment names a beacon that isn't on chain",
            f"epoch {assignment.epoch}: {assignment.beacon_hash}, on chain {beacon_hash}",
        )
    _check_drawn(assignment, validator, chain)
    if assignment.round == REAUDIT_ROUND:
        _check_reaudit(assignment, beacon_hash, validator, chain, history)
    return received


def drawing_epoch(received: Received, round_number: int, history: History) -> int | None:
    """The epoch whose beacon draws a round: that of the submission's arrival, and for round 1 that of its settling."""
    if round_number != REAUDIT_ROUND:
        return received.epoch if round_number == 0 else None
    settling = history.payments.settling(received.submission_id)
    return None if settling is None else settling.epoch


def draw_order(submission: Submission, epoch: int, round_number: int, chain: PoolChain) -> Iterator[DrawnSeat]:
    """The seats that may judge a submission, in the order in which the beacon of `epoch` draws them.

    Seats bonded later can't shift the draw; the submission's provider and the pool's own keys don't judge.
    Raises VerificationFailed while the beacon isn't sealed.
    """
    beacon_hash, record = chain.epoch_beacon(epoch), chain.record()
    if beacon_hash is None:
        raise VerificationFailed("a draw needs a beacon that isn't on chain yet", f"epoch {epoch}")
    seats = [seat for seat in chain.seats() if seat.active_from_epoch <= epoch]
    excluded = {chain.provider_of(submission.node), record.coordinator, record.trainer}
    return drawn_seats(beacon_hash, submission.id(chain.domain), round_number, seats, epoch, excluded)


def _check_received(assignment: Assignment, chain: PoolChain, history: History) -> Received:
    submission_id = assignment.submission.message.id(chain.domain)
    received = history.received(submission_id)
    if submission_id != assignment.submission_id or received is None:
        raise VerificationFailed(
            "an assignment isn't for a submission that the log has",
            f"{assignment.submission_id} hashes to {submission_id}, logged: {received}",
        )
    return received


def _check_reaudit(
    assignment: Assignment, beacon_hash: str, validator: str, chain: PoolChain, history: History
) -> None:
    if not is_reaudited(beacon_hash, assignment.submission_id, chain.record().reaudit_bps):
        raise VerificationFailed(
            "an assignment is a re-audit that no beacon picked", f"{assignment.submission_id}, epoch {assignment.epoch}"
        )
    if history.payments.opinions.has_judged(assignment.submission_id, validator):
        raise VerificationFailed(
            "an assignment re-audits our own verdict", f"{assignment.submission_id}, seat {assignment.seat}"
        )


def _check_drawn(assignment: Assignment, validator: str, chain: PoolChain) -> None:
    for drawn in draw_order(assignment.submission.message, assignment.epoch, assignment.round, chain):
        if (drawn.draw_index, drawn.seat.index) == (assignment.draw, assignment.seat):
            if drawn.seat.validator == validator:
                return
            break
        if drawn.draw_index > assignment.draw:
            break
    raise VerificationFailed(
        "an assignment isn't what the beacon drew",
        f"draw {assignment.draw} of round {assignment.round} on seat {assignment.seat} for {assignment.submission_id}",
    )
