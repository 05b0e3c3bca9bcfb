"""The shapes of the coordinator's HTTP API (`/v1`): what the server answers and the clients read.

Requests that change something carry an `Authorization: Proofpool …` header (`protocol/http.py`);
errors are RFC 9457 problem documents (`Problem`) whose `code` is a `RejectReason`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from protocol.wire import (
    PROTOCOL_VERSION,
    Address,
    Evidence,
    Hash32,
    Renewal,
    SchemaVersion,
    Signature,
    Signed,
    Submission,
    Task,
    UInt32,
    UInt64,
    Verdict,
    Wei,
    WeightsRelease,
)


class Standing(StrEnum):
    """Where a task's work stands. Only leases expire; slow verifiers cost a provider nothing."""

    LEASED = "leased"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    REORGED = "reorged"
    RECEIVED = "received"
    CHALLENGED = "challenged"
    DISPUTED = "disputed"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class Use(StrEnum):
    """What becomes of an accepted group; accepted is paid, used or not."""

    PENDING = "pending"
    BATCHED = "batched"
    CONSUMED = "consumed"
    UNUSED = "unused"


class ReauditState(StrEnum):
    """Where round 1 of a settled submission stands."""

    WAITING = "waiting"
    """The beacon that decides whether it is due isn't known yet."""
    NOT_DUE = "not_due"
    """The beacon didn't pick it."""
    DRAWN = "drawn"
    AGREED = "agreed"
    DISAGREED = "disagreed"
    UNDECIDED = "undecided"
    """No seat is left that could say more."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema_version: SchemaVersion = PROTOCOL_VERSION


class Problem(_Shape):
    """RFC 9457 problem document; `code` is a RejectReason or `internal`, `hint` says what to do."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    hint: str = ""
    value: str = ""
    threshold: str = ""


class ContractAddresses(_Shape):
    credits: Address
    registry: Address
    pools: Address
    ledger: Address
    court: Address
    jury: Address


class Freshness(_Shape):
    """How far the answer can be trusted to be new."""

    head_block: UInt64
    indexed_block: UInt64
    chain_time: UInt64
    lag_seconds: float


class PoolInfo(_Shape):
    """Everything a role needs to join a pool, at one address."""

    pool_id: UInt64
    chain_id: UInt64
    contracts: ContractAddresses
    deployment_salt: Hash32
    coordinator: Address
    trainer: Address
    rules_hash: Hash32
    model_hash: Hash32
    price_wei: Wei
    verify_price_wei: Wei
    min_allotment_wei: Wei
    max_async: UInt32
    accept_quorum: UInt32
    slash_quorum: UInt32
    confirmations: UInt32
    policy_version: UInt64 | None
    """Newest version whose beacon is sealed and whose manifest is known; None before version 0."""
    epoch: UInt64
    """Number of committed epochs; the open one has this number."""
    shardcast_urls: tuple[str, ...]
    paused: bool
    freshness: Freshness


class TaskRequest(_Shape):
    """A node asks for work on the newest version that it holds completely."""

    policy_version: UInt64


class RenewalRequest(_Shape):
    """A node asks for a later deadline than the one that it knows: where it was given one already, it gets that."""

    deadline: UInt64


class TaskView(_Shape):
    """A leased task, and what was handed in for it."""

    task: Signed[Task]
    standing: Standing
    submission_id: Hash32 | None
    renewal: Signed[Renewal] | None = None
    """The newest; None where the task's own deadline holds."""


class SubmissionEnvelope(_Shape):
    """Sent with the file: header `Proofpool-Submission`, base64url of its JSON. `signature` is the node's."""

    submission: Signed[Submission]
    file_sha256: Hash32
    num_bytes: UInt64


class UploadState(_Shape):
    """How much of a submission's file the coordinator holds: the next piece begins there."""

    num_bytes: UInt64


class VerdictView(_Shape):
    """A revealed verdict, and how many later seats agree with its work stamp or dispute it."""

    validator: Address
    verdict: Signed[Verdict]
    evidence: Evidence
    num_stamp_agreeing: UInt32 = 0
    num_stamp_disputing: UInt32 = 0


class ReauditView(_Shape):
    """Round 1: `epoch` anchors the settling, and its beacon decides and draws."""

    state: ReauditState
    epoch: UInt64


class SettlingView(_Shape):
    """The decision in the log: its leaf, the epoch that anchors it, what the provider earned by it (0: rejected)."""

    log_index: UInt64
    epoch: UInt64
    amount_wei: Wei


class SubmissionView(_Shape):
    """A submission as it stands now."""

    submission_id: Hash32
    provider: Address
    submission: Signed[Submission]
    task: Signed[Task]
    standing: Standing
    reason: str | None
    file_sha256: Hash32
    num_bytes: UInt64
    num_rollouts: UInt32
    num_units: UInt64
    received_time: UInt64
    epoch: UInt64
    log_index: UInt64
    verdicts: tuple[VerdictView, ...] = ()
    settling: SettlingView | None = None
    """None until it is decided; what a re-audit changes afterwards pays nothing, and isn't here."""
    reaudit: ReauditView | None = None
    renewal: Signed[Renewal] | None = None
    """Of the lease; None where the task's own deadline held."""


class Assignment(_Shape):
    """A drawn seat's work: draw number `draw` of `round` fell on `seat` (checkable with `protocol/draw.py`).

    `beacon_hash` is beacon(`epoch`): of the epoch that received the submission, and in round 1 of the one that anchors
    its settling.
    """

    submission_id: Hash32
    provider: Address
    submission: Signed[Submission]
    task: Signed[Task]
    file_sha256: Hash32
    epoch: UInt64
    beacon_hash: Hash32
    round: UInt32
    draw: UInt32
    seat: UInt32
    num_revealed: UInt32 = 0
    """Verdicts on this submission that are revealed already: their stamps are to be reviewed."""
    verdict_epoch: UInt64
    """Commitments made in this (open) epoch count; they can be revealed once it is anchored."""
    renewal: Signed[Renewal] | None = None
    """Of the lease; None where the task's own deadline held."""


class VerdictReveal(_Shape):
    """A committed verdict, opened: `salt` and `path` lead to the anchored root of (epoch, seat, part)."""

    verdict: Signed[Verdict]
    evidence: Evidence
    salt: Hash32
    commitment_epoch: UInt64
    part: UInt32
    path: tuple[Hash32, ...]


class GroupRef(_Shape):
    """One group of a batch."""

    submission_id: Hash32
    group: UInt32


class BatchRefusal(_Shape):
    """Why the trainer can't train on a batch: a row of this submission would poison the weights."""

    submission_id: Hash32
    why: Annotated[str, Field(min_length=1, max_length=400)]


class BatchOffer(_Shape):
    """A leased batch: the file holds exactly these groups, in this order; acknowledge before `deadline`."""

    pool_id: UInt64
    number: UInt64
    step: UInt64
    groups: tuple[GroupRef, ...]
    groups_root: Hash32
    rules_hash: Hash32
    """The rules that all its groups were leased under."""
    signature: Signature
    file_sha256: Hash32
    num_rollouts: UInt32
    num_tokens: UInt64
    deadline: UInt64


class WeightsView(_Shape):
    """A policy version: the trainer's signed release, and the beacon that seeds its tasks once sealed."""

    release: Signed[WeightsRelease]
    beacon_block: UInt64
    beacon_hash: Hash32 | None
    published_time: UInt64


MAX_ARRIVALS = 1000
"""Nodes that are named of a version; `num_nodes` counts all."""


class NodeArrival(_Shape):
    """A node that has a policy version, and when it first leased work on it (chain time, seconds)."""

    node: Address
    first_lease_time: UInt64


class VersionSpread(_Shape):
    """Who works on a policy version since when; times are the chain's, in seconds."""

    policy_version: UInt64
    manifest_hash: Hash32
    published_time: UInt64
    announced_time: UInt64
    num_nodes: UInt64
    nodes: Annotated[tuple[NodeArrival, ...], Field(max_length=MAX_ARRIVALS)]
    """In order of time; the first ones where there are more."""


class ProviderEarnings(_Shape):
    account: Address
    cumulative_wei: Wei


class EarningsStatement(_Shape):
    """Gross cumulative earnings up to `epoch`, one leaf an account (OpenZeppelin StandardMerkleTree)."""

    pool_id: UInt64
    epoch: UInt64
    root: Hash32
    total_wei: Wei
    accounts: tuple[ProviderEarnings, ...]


class LogEntry(_Shape):
    """One leaf of the audit log. `event` is the canonical document itself."""

    index: UInt64
    subject: Hash32
    event_hash: Hash32
    leaf_hash: Hash32
    event: dict[str, Any]


class InclusionProof(_Shape):
    """That `leaf_hash` at `index` is under `root`, anchored on chain by `epoch`."""

    index: UInt64
    leaf_hash: Hash32
    size: UInt64
    root: Hash32
    epoch: UInt64
    path: tuple[Hash32, ...]


class ConsistencyProof(_Shape):
    """That the log of `old_size` leaves is a prefix of the log of `new_size` leaves (RFC 9162)."""

    old_epoch: UInt64
    new_epoch: UInt64
    old_size: UInt64
    new_size: UInt64
    old_root: Hash32
    new_root: Hash32
    path: tuple[Hash32, ...]


class EpochView(_Shape):
    epoch: UInt64
    size: UInt64
    root: Hash32
    transaction: Hash32 | None
    block: UInt64 | None
    beacon_hash: Hash32 | None


class Status(_Shape):
    """How the coordinator is: how fresh, how much waits.

    `num_by_standing` counts tasks, `num_by_use` groups, `num_by_reaudit` settled submissions, `outbox` chain calls.
    """

    freshness: Freshness
    epoch: UInt64
    """Number of the open epoch."""
    committed_epochs: UInt64
    log_size: UInt64
    log_root: Hash32
    policy_version: UInt64 | None
    num_by_standing: dict[str, UInt64]
    num_by_use: dict[str, UInt64]
    """Groups of accepted submissions: pending, batched, consumed, or why they are unused (stale, no_variance, …)."""
    num_by_reaudit: dict[str, UInt64]
    disputed_stamps: dict[str, UInt64]
    """By validator: work stamps that more seats dispute than confirm."""
    num_pending_groups: UInt64
    earned_wei: Wei
    claimed_wei: Wei
    outbox: dict[str, UInt64]


class CaseVerdict(_Shape):
    """A verdict as Court.accuse takes it: raw draw `draw` of its round fell on its seat."""

    validator: Address
    draw: UInt32
    verdict: Signed[Verdict]


class CaseFile(_Shape):
    """Everything that an accusation of a submission is made of; who accuses picks the slashing verdicts."""

    submission: Signed[Submission]
    event_hash: Hash32
    """SHA-256 of the `submission.received` event's canonical bytes."""
    inclusion: InclusionProof
    verdicts: tuple[CaseVerdict, ...]
    """In drawn order, of every outcome."""
