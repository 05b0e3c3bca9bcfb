"""Whether an assignment is what the chain drew, so that the coordinator can't choose who judges whom.

In: an `Assignment` from the coordinator, the chain, the checked log. Out: where and when the submission was
logged, or VerificationFailed with what the coordinator got wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.api import Assignment
from protocol.draw import DrawnSeat, drawn_seats
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
    beacon_hash = chain.epoch_beacon(assignment.epoch)
    if beacon_hash is None or assignment.beacon_hash != beacon_hash:
        raise VerificationFailed(
            "an assignment names a beacon that isn't on chain",
            f"epoch {assignment.epoch}: {assignment.beacon_hash}, on chain {beacon_hash}",
        )
    _check_drawn(assignment, validator, chain)
    return received


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
    if submission_id != assignment.submission_id or received is None or received.epoch != assignment.epoch:
        raise VerificationFailed(
            "an assignment isn't for a submission that its epoch anchors",
            f"{assignment.submission_id} in epoch {assignment.epoch}; hashes to {submission_id}, logged: {received}",
        )
    return received


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
