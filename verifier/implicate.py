"""Seats that accepted what is called a forgery answer for it in the case, with their bonds.

In: the verdicts that a coordinator serves of a submission, the chain's seats, an open case. Out: `Court.implicate` for
each valid acceptance that isn't named yet. Anybody may name one, so a colleague who was first is no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from protocol.api import VerdictView
from protocol.draw import REAUDIT_ROUND, Seat
from protocol.errors import SignatureInvalid, TransactionReverted
from protocol.reasons import Outcome
from protocol.signing import SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import Signed, Verdict

MAX_IMPLICATED = 8
"""As many as one case takes (Cases.MAX_IMPLICATED)."""
OUT_OF_REACH = ("AlreadyImplicated", "ImplicatedFull", "SeatWithoutBond", "TooLate", "WrongState")
"""Refusals that say the seat is named already, has nothing to lose, or the case takes no more."""


class ImplicatingChain(Protocol):
    """What this asks of a pool's chain; `ChainPool` is one."""

    @property
    def domain(self) -> SigningDomain: ...

    def seats(self) -> Sequence[Seat]: ...

    def implicated_of(self, submission_id: str) -> tuple[int, ...]: ...

    def implicate(self, submission_id: str, verdict: Verdict, signature: str) -> None:
        """Raises TransactionReverted."""
        ...


def implicate(
    chain: ImplicatingChain, pool_id: int, submission_id: str, verdicts: Iterable[VerdictView]
) -> tuple[int, ...]:
    """Name every seat that accepted and isn't named yet, in the order given; the seats that this call has named."""
    known, named = set(chain.implicated_of(submission_id)), list[int]()
    room = MAX_IMPLICATED - len(known)
    for signed in acceptances(chain, pool_id, submission_id, verdicts):
        if signed.message.seat in known or len(named) >= room:
            continue
        try:
            chain.implicate(submission_id, signed.message, signed.signature)
        except TransactionReverted as error:
            if error.name not in OUT_OF_REACH:
                raise
            get_logger().info(
                "seat.not_implicated", submission_id=submission_id, seat=signed.message.seat, why=error.name
            )
        else:
            known.add(signed.message.seat)
            named.append(signed.message.seat)
            get_logger().info("seat.implicated", submission_id=submission_id, seat=signed.message.seat)
    return tuple(named)


def acceptances(
    chain: ImplicatingChain, pool_id: int, submission_id: str, verdicts: Iterable[VerdictView]
) -> list[Signed[Verdict]]:
    """The verdicts among these by which a seat has accepted, as the Court will read them; others are passed over."""
    seats, domain = chain.seats(), chain.domain
    return [view.verdict for view in verdicts if _is_acceptance(view.verdict, seats, domain, pool_id, submission_id)]


def _is_acceptance(
    signed: Signed[Verdict], seats: Sequence[Seat], domain: SigningDomain, pool_id: int, submission_id: str
) -> bool:
    message = signed.message
    says = (message.submission_id, message.pool_id, message.outcome)
    if says != (submission_id, pool_id, Outcome.ACCEPT) or message.round > REAUDIT_ROUND or message.seat >= len(seats):
        return False
    try:
        signed.check(seats[message.seat].validator, domain)
    except SignatureInvalid:
        return False
    return True
