"""What the auditor's commands print with `--json`: the shapes of their documents.

In: a document. Out: it, checked field by field; `protocol/documents.py` makes the committed schemas of these. Reports
that are dataclasses stand here as the fields that their `as_json` gives.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.events import LogEvent
from protocol.fate import Fate
from protocol.wire import Address, Hash32, UInt64, Wei
from verifier.audit.court.challenge import ChallengeReport
from verifier.audit.court.dispute import DisputeReport
from verifier.audit.court.inclusion import DemandReport
from verifier.audit.fairness.fairness import Account, Overlap, ProviderRow
from verifier.audit.fairness.promises import Kept
from verifier.audit.replay.replay import Replay
from verifier.audit.reports.accountability import Audited, Overturned, Pair, ValidatorRow
from verifier.audit.step import StepState

Result = Literal["ok", "failed", "consistent, not anchored"]
Reasons = dict[str, int]
"""How often, by reason."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Versioned(_Shape):
    schema_version: Literal[1] = 1


class StepDocument(_Shape):
    """One step of an audit: ok, failed or open, and `why` it isn't ok."""

    name: str
    state: StepState
    values: dict[str, str]
    why: str


class AuditDocument(_Versioned):
    """An audit's steps and what they come to. `anchor` names the chain, empty without one."""

    subject: str
    result: Result
    anchor: str
    as_of: str
    steps: tuple[StepDocument, ...]


class AccountDocument(_Shape):
    """One account's money, base units."""

    account: Address
    earned_wei: Wei
    paid_wei: Wei
    withheld_wei: Wei
    owed_wei: Wei


class MoneyDocument(AuditDocument):
    accounts: tuple[AccountDocument, ...]


class LeafDocument(_Shape):
    """A leaf about the subject. `epoch` anchors it, None while none does."""

    state: StepState
    why: str
    epoch: UInt64 | None
    leaf_hash: Hash32
    reason: str | None
    event: LogEvent


class ShowingDocument(_Versioned):
    """What happened to a hash. `left_out` are leaves that the coordinator didn't show."""

    subject: Hash32
    result: Result
    anchor: str
    as_of: str
    read: str
    left_out: tuple[int, ...]
    leaves: tuple[LeafDocument, ...]
    what_happened: Fate | None


class LogDocument(_Shape):
    """The log that a report was made of. `root` is its newest head's, None before the first."""

    pool_id: UInt64
    anchored: bool
    anchor: str
    num_epochs: int
    num_leaves: int
    root: Hash32 | None


class Unreadable(_Shape):
    """Events that couldn't be used, and the first one's index."""

    num_unreadable: int
    first_unreadable: int | None


class AccountabilityDocument(_Versioned):
    """What each validator has done. `expected_bps` is the pool's share of re-audits."""

    log: LogDocument
    expected_bps: int
    audited: Audited
    validators: tuple[ValidatorRow, ...]
    agreement: tuple[Pair, ...]
    overturned: tuple[Overturned, ...]
    num_overturned: int
    unreadable: Unreadable


class EnvironmentDocument(_Shape):
    """Whether leases under these rules could be derived; `unavailable` says why not."""

    rules_hash: Hash32
    name: str | None
    is_checked: bool
    unavailable: str | None


class RefusedDocument(_Shape):
    """Refusals at the door, by node and reason; `others` are of nodes that got no row."""

    num_epochs: int
    leases: dict[Address, Reasons]
    submissions: dict[Address, Reasons]
    others: dict[Literal["leases", "submissions"], Reasons]


class PromiseDocument(_Shape):
    kind: Literal["receipt", "forced"]
    submission_id: Hash32
    node: Address
    epoch: UInt64
    state: Kept
    found_epoch: UInt64 | None


class PromisesDocument(_Shape):
    num_by_state: dict[Kept, int]
    not_kept: tuple[PromiseDocument, ...]


class FairnessDocument(_Versioned):
    """What was leased against what came back."""

    log: LogDocument
    total: Account
    providers: tuple[ProviderRow, ...]
    environments: tuple[EnvironmentDocument, ...]
    num_underived: int
    num_foreign: int
    num_unexplained: int
    refused: RefusedDocument
    promises: PromisesDocument
    files: dict[str, int] | None
    overlap: Overlap | None
    unreadable: Unreadable


class AlertLine(_Versioned):
    """Something that a watch tells; a fault is what no honest log has."""

    event: Literal["alert"]
    number: int
    kind: str
    is_fault: bool
    epoch: UInt64 | None
    log_index: UInt64 | None
    subject: str | None
    detail: str


class CheckedLine(_Versioned):
    """How far a watch is."""

    event: Literal["checked"]
    epochs: int
    size: int
    checkpoint_size: int
    num_again: int
    num_replayed: int
    num_faults: int
    head_time: int
    chain_time: int


WatchLine = Annotated[AlertLine | CheckedLine, Field(discriminator="event")]


class ReplayDocument(Replay):
    """`command` does what follows, for who has the keys; None where nothing does."""

    command: str | None


class ChallengeDocument(ChallengeReport):
    schema_version: Literal[1] = 1


class DisputeDocument(DisputeReport):
    schema_version: Literal[1] = 1


class DemandDocument(DemandReport):
    schema_version: Literal[1] = 1


class CommittedDocument(_Versioned):
    epoch: UInt64
    transaction_hash: Hash32


class ClaimedDocument(_Versioned):
    account: Address
    amount_wei: Wei
