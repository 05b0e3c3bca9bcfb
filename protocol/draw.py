"""Who judges: the seats that a beacon draws for a submission, by the same arithmetic as contracts/Seats.sol.

In: beacon(epoch), the submission's id, the round, the pool's seats. Out: eligible seats in drawn order, each
with the number of its raw draw, which is what an accusation lists and the Court re-checks.

Raw draw i is keccak256(abi.encode(beacon, id, uint32 round, uint32 i)) mod the number of seats that had become
active by the epoch: a prefix of the list, so that a seat bonded later can't shift an earlier draw. Skipped: seats
that have been released, seats of excluded owners (the submission's own provider, for a jury everybody with a stake in
the case; the pool's own roles can't bond seats), and validators that this round has drawn already. i counts skipped
draws too.

A beacon also decides which settled submissions are judged again (`is_reaudited`): the beacon of the epoch that anchors
the settling, which nobody knew before every verdict of round 0 was given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from protocol.canonical import from_hex0x, keccak256
from protocol.errors import UsageError

MAX_RAW_DRAWS = 256
"""Where to stop looking, as the contract does: draws are numbered 0 to 255."""

REAUDIT_ROUND = 1
JURY_ROUND = 2
REAUDIT_DRAW = 2**32 - 1
"""The number of the raw draw that decides on a re-audit; seats end long before it."""
BPS = 10_000

FOREVER = 2**48 - 1
"""`active_until_epoch` of a seat that isn't being released."""


@dataclass(frozen=True)
class Seat:
    """One unit of validator bond in a pool; active in epochs from `active_from_epoch` up to, not including, until."""

    index: int
    validator: str
    active_from_epoch: int = 0
    active_until_epoch: int = FOREVER

    def is_active(self, epoch: int) -> bool:
        return self.active_from_epoch <= epoch < self.active_until_epoch


@dataclass(frozen=True)
class DrawnSeat:
    """A seat and the raw draw that gave it."""

    seat: Seat
    draw_index: int


def raw_draw(beacon: str, subject_id: str, round_number: int, draw_index: int, num_seats: int) -> int:
    """The seat index of one raw draw."""
    return _number(beacon, subject_id, round_number, draw_index) % num_seats


def is_reaudited(beacon: str, submission_id: str, share_bps: int) -> bool:
    """Whether the beacon of the epoch that anchors a settling picks the submission for round 1.

    `share_bps` is the rate in hundredths of a percent. The arithmetic is `Court.isReaudited`'s.
    """
    return _number(beacon, submission_id, REAUDIT_ROUND, REAUDIT_DRAW) % BPS < share_bps


def drawn_seats(
    beacon: str, subject_id: str, round_number: int, seats: Sequence[Seat], epoch: int, excluded: Collection[str] = ()
) -> Iterator[DrawnSeat]:
    """All eligible seats in drawn order, one a validator; ends when every eligible validator was drawn.

    `seats` holds every seat of the pool in order of index, released ones too: indices are never reused.
    """
    check_seat_list(seats)
    num_seats = sum(seat.active_from_epoch <= epoch for seat in seats)
    passed_over = {owner.lower() for owner in excluded}
    waiting = {seat.validator for seat in seats if seat.is_active(epoch)} - passed_over
    for draw_index in range(MAX_RAW_DRAWS):
        if not waiting:
            return
        seat = seats[raw_draw(beacon, subject_id, round_number, draw_index, num_seats)]
        if seat.is_active(epoch) and seat.validator in waiting:
            waiting.remove(seat.validator)
            yield DrawnSeat(seat, draw_index)


def draw_seats(
    beacon: str,
    subject_id: str,
    round_number: int,
    seats: Sequence[Seat],
    epoch: int,
    excluded: Collection[str] = (),
    *,
    num_seats: int,
) -> tuple[DrawnSeat, ...]:
    """The first `num_seats` of `drawn_seats`; fewer where fewer validators are eligible."""
    return tuple(islice(drawn_seats(beacon, subject_id, round_number, seats, epoch, excluded), num_seats))


def jury_seats(
    beacon: str, case_id: str, seats: Sequence[Seat], epoch: int, parties: Collection[str], jury_size: int
) -> tuple[DrawnSeat, ...]:
    """Who sits on a case's jury: the first `jury_size` eligible seats of round 2.

    `beacon` is the hash of the block that the Court named, `epoch` the one that was open then, `parties` whoever has a
    stake in the case. Fewer than `jury_size` are no jury: the case lapses.
    """
    return draw_seats(beacon, case_id, JURY_ROUND, seats, epoch, parties, num_seats=jury_size)


def check_seat_list(seats: Sequence[Seat]) -> None:
    """Raises UsageError unless seat i stands at position i and later seats become active no earlier."""
    for position, seat in enumerate(seats):
        if seat.index != position:
            raise UsageError("the seat list has a gap", f"seat {seat.index} at position {position}", "list every seat")
        if seat.active_from_epoch < seats[max(0, position - 1)].active_from_epoch:
            raise UsageError("the seat list isn't the chain's", f"seat {position} is active before the one in front")


def _number(beacon: str, subject_id: str, round_number: int, draw_index: int) -> int:
    """keccak256(abi.encode(bytes32 beacon, bytes32 id, uint32 round, uint32 index)) as an integer."""
    words = (
        from_hex0x(beacon) + from_hex0x(subject_id) + round_number.to_bytes(32, "big") + draw_index.to_bytes(32, "big")
    )
    return int.from_bytes(keccak256(words), "big")
