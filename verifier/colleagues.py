"""Verdicts that other seats have revealed: only what a drawn seat has signed is looked at.

In: `VerdictView`s from the coordinator, the chain, the checked log. Out: `Revealed`, or None where the chain didn't
draw the seat, or the validator didn't sign this verdict over this evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.api import VerdictView
from protocol.canonical import canonical_hash
from protocol.errors import ProofpoolError
from protocol.wire import Submission
from verifier.chain import PoolChain
from verifier.draws import draw_order, drawing_epoch
from verifier.history import History, Received
from verifier.stamps import Revealed, StampSeat


def drawn_verdict(
    view: VerdictView, submission: Submission, received: Received, chain: PoolChain, history: History
) -> Revealed | None:
    """The verdict, if its round's beacon draws its seat, and the seat is the validator's."""
    message = view.verdict.message
    epoch = drawing_epoch(received, message.round, history)
    beacon_hash = None if epoch is None else chain.epoch_beacon(epoch)
    if epoch is None or beacon_hash is None:
        return None
    if (message.submission_id, message.epoch) != (received.submission_id, epoch) or not is_signed(view, chain):
        return None
    drawn = {one.seat.index: one.seat.validator for one in draw_order(submission, epoch, message.round, chain)}
    if drawn.get(message.seat) != view.validator:
        return None
    return Revealed(StampSeat(beacon_hash, message.submission_id, message.round, message.seat), message, view.evidence)


def withheld_verdicts(
    views: Sequence[VerdictView], submission_id: str, logged: Iterable[tuple[int, str]], chain: PoolChain
) -> list[str]:
    """Verdicts that the log says are revealed, by round and validator, and whose signed word isn't among `views`."""
    served = {
        (view.verdict.message.round, view.validator)
        for view in views
        if view.verdict.message.submission_id == submission_id and is_signed(view, chain)
    }
    return [f"{validator} in round {number}" for number, validator in logged if (number, validator) not in served]


def is_signed(view: VerdictView, chain: PoolChain) -> bool:
    """Whether the validator signed this verdict, and over this evidence."""
    try:
        message = view.verdict.check(view.validator, chain.domain)
        return canonical_hash(view.evidence.as_json()) == message.evidence_hash
    except ProofpoolError:  # a wrong signature, or evidence without a canonical form, which nobody can have signed
        return False
