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
FROM_BOTH = ("earned_wei", "claimed_wei", "claimable_wei", "withheld_wei", "pending_wei", "unrooted_wei", "next_payout")
UNSURE = (PaymentState.UNKNOWN, PaymentState.ACCEPTED)
"""States that a silence has left open."""


class AsOf(BaseModel):
    """When each was last asked and answered, Unix seconds of this machine; None where it never has."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    coordinator: float | None
    chain: float | None


def recall(data_dir: Path, found: NodeStatus) -> NodeStatus:
    """With what is remembered of whoever didn't answer."""
    if found.as_of.coordinator and found.as_of.chain:
        return found
    before = last_known(data_dir)
    if before is None or before.node != found.node:
        return found
    names = (*FROM_BOTH, *(() if found.as_of.coordinator else FROM_COORDINATOR))
    names = (*names, *(() if found.as_of.chain else FROM_CHAIN))
    changes: dict[str, Any] = {name: getattr(before, name) for name in names if getattr(found, name) is None}
    times = AsOf(
        coordinator=found.as_of.coordinator or before.as_of.coordinator, chain=found.as_of.chain or before.as_of.chain
    )
    rows = {row.submission_id: row for row in before.recent}
    recent = tuple(_better(row, rows.get(row.submission_id)) for row in found.recent)
    return found.model_copy(update={**changes, "as_of": times, "recent": recent})


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
