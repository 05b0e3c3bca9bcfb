"""What becomes of accepted groups: every one ends consumed or unused, and none is used twice.

    (not accepted yet) ─┬─▶ pending ─┬─▶ batched ─▶ consumed
                        │        ▲   │      │
                        │        └───┼──────┘        its batch was refused by the trainer
                        └─▶ unused ◀─┘               stale, no_variance, surplus or unfit

In: a group and its new use. Out: the row changed; a group that ends unused has a `group.unused` event with
the reason (batched and consumed ones are covered by their batch's events).
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy.orm import Session

from coordinator import log
from coordinator.db.work import GroupRow
from coordinator.pool import chain_time
from protocol.api import Use
from protocol.errors import ProofpoolError

MOVES: dict[str | None, frozenset[Use]] = {
    None: frozenset({Use.PENDING, Use.UNUSED}),
    Use.PENDING: frozenset({Use.BATCHED, Use.UNUSED}),
    Use.BATCHED: frozenset({Use.CONSUMED, Use.PENDING}),
    Use.CONSUMED: frozenset(),
    Use.UNUSED: frozenset(),
}


class Unused(StrEnum):
    """Why an accepted group isn't trained on. It is paid all the same."""

    STALE = "stale"
    NO_VARIANCE = "no_variance"
    SURPLUS = "surplus"
    UNFIT = "unfit"
    """The trainer refused it: a row would poison the weights."""


def can_move(old: str | None, new: Use) -> bool:
    return new in MOVES[old]


def move(group: GroupRow, new: Use) -> None:
    """Raises ProofpoolError for a move that isn't in `MOVES`."""
    if not can_move(group.use, new):
        raise ProofpoolError(
            "a group can't be used like that", f"{group.submission_id}/{group.group}: {group.use} to {new}"
        )
    group.use = new


def leave_unused(session: Session, group: GroupRow, reason: Unused) -> None:
    move(group, Use.UNUSED)
    group.unused_reason = reason
    log.append(
        session,
        "group.unused",
        group.submission_id,
        chain_time(session),
        {"group": group.group, "reason": reason.value},
    )


def put_to_use(session: Session, group: GroupRow) -> None:
    """A group of a submission that has just been accepted."""
    if group.has_variance:
        move(group, Use.PENDING)
    else:
        leave_unused(session, group, Unused.NO_VARIANCE)
