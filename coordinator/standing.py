"""Where a task's work stands, and how it may move on: every move is an event.

    leased ─┬─▶ received ─┬─▶ accepted ◀──┐ ┌──▶ challenged ─▶ accepted | rejected
            ├─▶ expired   ├─▶ rejected ◀──┼─┘
            ├─▶ abandoned ├─▶ disputed ───┘
            └─▶ reorged   └─▶ reorged

In: a task (with its submission from `received` on) and its new standing. Out: both rows changed, the event
appended, and the reservation given back where the work is over. Both rows always say the same.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from coordinator import escrow, log
from coordinator.db.work import SubmissionRow, TaskRow
from coordinator.pool import chain_time
from protocol.api import Standing
from protocol.canonical import JsonValue
from protocol.errors import ProofpoolError, Rejected
from protocol.reasons import RejectReason

MOVES: dict[Standing, frozenset[Standing]] = {
    Standing.LEASED: frozenset({Standing.RECEIVED, Standing.EXPIRED, Standing.ABANDONED, Standing.REORGED}),
    Standing.EXPIRED: frozenset(),
    Standing.ABANDONED: frozenset(),
    Standing.REORGED: frozenset(),
    Standing.RECEIVED: frozenset(
        {Standing.ACCEPTED, Standing.REJECTED, Standing.DISPUTED, Standing.CHALLENGED, Standing.REORGED}
    ),
    Standing.DISPUTED: frozenset({Standing.ACCEPTED, Standing.REJECTED, Standing.CHALLENGED, Standing.REORGED}),
    Standing.ACCEPTED: frozenset({Standing.CHALLENGED}),
    Standing.REJECTED: frozenset({Standing.CHALLENGED}),
    Standing.CHALLENGED: frozenset({Standing.ACCEPTED, Standing.REJECTED}),
}

OPEN = (Standing.LEASED, Standing.RECEIVED, Standing.DISPUTED)
"""Standings in which the task's cost is reserved."""

UNSETTLED = (Standing.RECEIVED, Standing.DISPUTED)
"""Handed in, and not judged yet."""

_TASK_EVENTS = {
    Standing.EXPIRED: "task.expired",
    Standing.ABANDONED: "task.abandoned",
    Standing.REORGED: "task.reorged",
}


def can_move(old: str, new: Standing) -> bool:
    return new in MOVES[Standing(old)]


def check_lease_open(task: TaskRow, now: int) -> None:
    """Raises Rejected where nothing can be handed in for this lease at `now` (chain time), with the reason."""
    if task.standing == Standing.REORGED:
        raise Rejected(RejectReason.REORGED, task.task_id)
    if task.standing in (Standing.EXPIRED, Standing.ABANDONED) or now > task.deadline:
        raise Rejected(
            RejectReason.LEASE_EXPIRED, "chain time against deadline", value=str(now), threshold=str(task.deadline)
        )
    if task.standing != Standing.LEASED:
        raise Rejected(RejectReason.LEASE_UNKNOWN, "this lease has been used for another submission")


def move(
    session: Session,
    task: TaskRow,
    new: Standing,
    submission: SubmissionRow | None = None,
    **data: JsonValue,
) -> int:
    """Take `task` (and what was submitted for it) to `new`; returns the leaf's number.

    Raises ProofpoolError for a move that isn't in `MOVES`.
    """
    if not can_move(task.standing, new):
        raise ProofpoolError("work can't move like that", f"{task.task_id}: {task.standing} to {new.value}")
    task.standing = new
    if submission is not None:
        submission.standing = new
    if new not in OPEN and task.reserved_wei:
        escrow.release(session, task.pool_id, task.reserved_wei)
        task.reserved_wei = 0
    name = _TASK_EVENTS.get(new, f"submission.{new.value}")
    subject = task.task_id if submission is None or new in _TASK_EVENTS else submission.submission_id
    about: dict[str, JsonValue] = {"task_id": task.task_id, "node": task.node, "provider": task.provider}
    return log.append(session, name, subject, chain_time(session), about | data)
