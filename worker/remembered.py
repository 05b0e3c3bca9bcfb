"""What was last known of a node, kept beside its work: a status is worth something while nobody answers.

In: a status with holes. Out: the same with what the last one had in their place, and the times that it is of. The file
is DATA/process/last_known.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.files import write_atomically
from worker.payment import PaymentState
from worker.recent import RecentSubmission
from worker.state_file import FOLDER

if TYPE_CHECKING:
    from worker.status import NodeStatus

LAST_KNOWN_FILE = "last_known.json"
FROM_COORDINATOR = ("min_allotment_wei", "pool_version", "rules_hash")
FROM_CHAIN = ("provider", "allotment_wei")
JUDGED = ("num_judged", "num_accepted", "num_unjudged")
FROM_BOTH = ("earned_wei", "claimed_wei", "claimable_wei", "withheld_wei", "pending_wei", "unrooted_wei", "next_payout")
UNSURE = (PaymentState.UNKNOWN, PaymentState.ACCEPTED)
"""States that a silence has left open."""


class AsOf(BaseModel):
    """When each was last asked and answered, Unix seconds of this machine; None where it never has."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    coordinator: float | None
    chain: float | None


def recall(data_dir: Path, found: NodeStatus) -> NodeStatus:
    """With what is remembered of whoever didn't answer, wholly or in part."""
    before = last_known(data_dir)
    if before is None or before.node != found.node:
        return found
    newest = max((time for time in (found.accepted_time, before.accepted_time) if time is not None), default=None)
    if not found.unanswered:
        return found.model_copy(update={"accepted_time": newest})
    rows = {row.submission_id: row for row in before.recent}
    recent = tuple(_better(row, rows.get(row.submission_id)) for row in found.recent)
    changes = {**_forgotten(found, before), **_judged(found, before)}
    return found.model_copy(
        update={**changes, "accepted_time": newest, "as_of": _times(found, before), "recent": recent}
    )


def _forgotten(found: NodeStatus, before: NodeStatus) -> dict[str, Any]:
    """What nobody said; a node that isn't registered, by the chain's own word, has no money."""
    is_nobodys = found.as_of.chain is not None and found.provider is None
    names = (
        *(() if is_nobodys else FROM_BOTH),
        *(() if found.as_of.coordinator else FROM_COORDINATOR),
        *(() if found.as_of.chain else FROM_CHAIN),
    )
    if found.earned_wei is not None:
        names = tuple(name for name in names if name not in FROM_BOTH)
    return {name: getattr(before, name) for name in names if getattr(found, name) is None}


def _judged(found: NodeStatus, before: NodeStatus) -> dict[str, Any]:
    """A share of fewer than were known before is a silence."""
    if found.as_of.coordinator and found.num_judged >= before.num_judged:
        return {}
    last = found.last_submission
    is_same = last and before.last_submission and last.submission_id == before.last_submission.submission_id
    changes: dict[str, Any] = {name: getattr(before, name) for name in JUDGED}
    return {**changes, "last_submission": before.last_submission} if is_same else changes


def _times(found: NodeStatus, before: NodeStatus) -> AsOf:
    """Money that is remembered makes both parts as old as it is."""
    is_money_old = found.earned_wei is None and before.earned_wei is not None and found.provider is not None
    here, there = found.as_of, before.as_of
    return AsOf(
        coordinator=there.coordinator if is_money_old else here.coordinator or there.coordinator,
        chain=here.chain or there.chain,
    )


def remember(data_dir: Path, status: NodeStatus) -> None:
    """For the next time. Who may read the folder and not write into it is told the same, and nothing is kept."""
    if not data_dir.exists() or (status.as_of.coordinator is None and status.as_of.chain is None):
        return
    try:
        write_atomically(data_dir / FOLDER / LAST_KNOWN_FILE, status.model_dump_json().encode())
    except OSError:
        return


def _better(row: RecentSubmission, before: RecentSubmission | None) -> RecentSubmission:
    return before if before is not None and row.payment.state in UNSURE else row


def last_known(data_dir: Path) -> NodeStatus | None:
    """The status that was last put together while somebody answered."""
    from worker.status import NodeStatus

    try:
        return NodeStatus.model_validate_json((data_dir / FOLDER / LAST_KNOWN_FILE).read_bytes())
    except (OSError, ValidationError):  # none yet, or one of another version
        return None
