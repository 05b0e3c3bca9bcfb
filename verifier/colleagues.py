"""Verdicts that other seats have revealed: only what a drawn seat has signed is looked at.

In: `VerdictView`s from the coordinator, the chain, the checked log. Out: `Revealed`, or None where the chain didn't
draw the seat, or the validator didn't sign this verdict over this evidence.
"""

from __future__ import annotations

from protocol.api import VerdictView
from protocol.canonical import canonical_hash
from protocol.errors import ProofpoolError
from verifier.chain import PoolChain
from verifier.draws import drawing_epoch
from verifier.history import History, Received
from verifier.stamps import Revealed, StampSeat


def drawn_verdict(view: VerdictView, received: Received, chain: PoolChain, history: History) -> Revealed | None:
    """The verdict, if its seat is the validator's, and its round was drawn by the beacon that it names."""
    message = view.verdict.message
    epoch = drawing_epoch(received, message.round, history)
    beacon_hash = None if epoch is None else chain.epoch_beacon(epoch)
    owner = next((seat.validator for seat in chain.seats() if seat.index == message.seat), None)
    if beacon_hash is None or (message.submission_id, message.epoch) != (received.submission_id, epoch):
        return None
    if owner != view.validator or not is_signed(view, chain):
        return None
    return Revealed(StampSeat(beacon_hash, message.submission_id, message.round, message.seat), message, view.evidence)


def is_signed(view: VerdictView, chain: PoolChain) -> bool:
    """Whether the validator signed this verdict, and over this evidence."""
    try:
        message = view.verdict.check(view.validator, chain.domain)
        return canonical_hash(view.evidence.as_json()) == message.evidence_hash
    except ProofpoolError:  # a wrong signature, or evidence without a canonical form, which nobody can have signed
        return False
