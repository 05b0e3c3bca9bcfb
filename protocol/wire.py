"""The messages that cross between processes: frozen, versioned, signed.

    coordinator ── Task ──────────────▶ worker          leased work; fixes price, rules and beacon
    coordinator ── Renewal ───────────▶ worker          the same task, a later deadline
    worker ─────── Submission ────────▶ coordinator     its id follows the whole row
    coordinator ── Receipt ───────────▶ worker          a promise of inclusion by an epoch
    verifier ───── VerdictCommitment ─▶ coordinator     one Merkle root per seat and epoch, anchored first
    verifier ───── Verdict ───────────▶ coordinator     revealed afterwards, settles the submission
    coordinator ── Batch ─────────────▶ trainer         accepted groups, leased and acknowledged
    trainer ────── WeightsRelease ────▶ workers         a policy version and its manifest
    trainer ────── ShardListing ──────▶ relays          its finished shards, while later ones are written
    verifier ───── EarningsAttestation▶ chain           a seat recomputed the earnings root
    verifier ───── EpochAttestation ──▶ chain           a seat holds this log, whose coordinator is silent

Integers carry their Solidity width in `solidity_type`; 32-byte values and addresses are lower-case
0x-hex strings; money is integers in base units (`_wei`), written as decimal strings in JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints

from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer, SigningDomain, TypedMessage, check_signature

PROTOCOL_VERSION = 1
MAX_STAMP_REVIEWS = 64
"""In one verdict's evidence."""

Hash32 = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{64}$")]
Address = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{40}$")]
Signature = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{130}$")]
UInt8 = Annotated[int, Field(ge=0, lt=2**8)]
UInt32 = Annotated[int, Field(ge=0, lt=2**32)]
SchemaVersion = Annotated[int, Field(ge=PROTOCOL_VERSION, le=PROTOCOL_VERSION)]
"""What is of another version isn't read as if it were of this one."""
UInt64 = Annotated[int, Field(ge=0, le=2**53 - 1)]  # uint64 on chain; JSON holds integers to 2^53 - 1


def _parse_wei(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 39 else value


Wei = Annotated[
    int, BeforeValidator(_parse_wei), Field(ge=0, lt=2**128), PlainSerializer(str, return_type=str, when_used="json")
]

ZERO_HASH = "0x" + "00" * 32
ZERO_ADDRESS = "0x" + "00" * 20


class NodeAuthorization(TypedMessage):
    """A node agrees to work for a provider; checked by `Registry.addNode`."""

    solidity_type: ClassVar[str] = "NodeAuthorization(address provider,address node,uint256 nonce,uint64 deadline)"
    provider: Address
    node: Address
    nonce: UInt64
    deadline: UInt64


class Task(TypedMessage):
    """A lease of work: this node, this counter, this policy version, until `deadline` (chain time, seconds).

    `price_wei` is per unit; `max_units` × price is reserved from the pool when the task is leased.
    `beacon_block` and `beacon_hash` are beacon(policy_version) as stored on chain by `seal`.
    """

    solidity_type: ClassVar[str] = (
        "Task(uint64 poolId,uint64 policyVersion,address node,uint64 counter,bytes32 rulesHash,"
        "uint64 beaconBlock,bytes32 beaconHash,uint128 priceWei,uint64 maxUnits,uint64 deadline)"
    )
    pool_id: UInt64
    policy_version: UInt64
    node: Address
    counter: UInt64
    rules_hash: Hash32
    beacon_block: UInt64
    beacon_hash: Hash32
    price_wei: Wei
    max_units: UInt64
    deadline: UInt64


class Renewal(TypedMessage):
    """More time for a lease: `task_id` stays as it was leased, and may be handed in until this later `deadline`."""

    solidity_type: ClassVar[str] = "Renewal(bytes32 taskId,uint64 deadline)"
    task_id: Hash32
    deadline: UInt64


class Submission(TypedMessage):
    """What a node claims to have made for a task. Its EIP-712 digest is the submission id.

    `content_hash` is over the canonical row bytes (`protocol/rollouts.py`), not over the file's encoding.
    """

    solidity_type: ClassVar[str] = (
        "Submission(uint64 poolId,uint64 policyVersion,address node,uint64 counter,"
        "bytes32 rulesHash,bytes32 contentHash)"
    )
    pool_id: UInt64
    policy_version: UInt64
    node: Address
    counter: UInt64
    rules_hash: Hash32
    content_hash: Hash32


class Receipt(TypedMessage):
    """The coordinator has the submission and will log it by `include_by_epoch`."""

    solidity_type: ClassVar[str] = "Receipt(bytes32 submissionId,uint64 receivedBlock,uint64 includeByEpoch)"
    submission_id: Hash32
    received_block: UInt64
    include_by_epoch: UInt64


class Verdict(TypedMessage):
    """A drawn seat's finding. `evidence_hash` is over the canonical JSON of its check results (`Evidence`)."""

    solidity_type: ClassVar[str] = (
        "Verdict(bytes32 submissionId,uint64 poolId,uint64 epoch,uint32 round,uint32 seat,"
        "uint8 outcome,uint8 reason,bytes32 rulesHash,bytes32 evidenceHash)"
    )
    submission_id: Hash32
    pool_id: UInt64
    epoch: UInt64
    round: UInt32
    seat: UInt32
    outcome: UInt8
    reason: UInt8
    rules_hash: Hash32
    evidence_hash: Hash32

    @property
    def reject_reason(self) -> RejectReason | None:
        return None if self.outcome == Outcome.ACCEPT else RejectReason.from_code(self.reason)


class VerdictCommitment(TypedMessage):
    """The Merkle root over one seat's verdicts on the submissions of `epoch`, sent before any is revealed.

    Leaves are verdict digests salted as in `protocol/merkle/commitment.py`.
    """

    solidity_type: ClassVar[str] = "VerdictCommitment(uint64 poolId,uint64 epoch,uint32 seat,uint32 part,bytes32 root)"
    pool_id: UInt64
    epoch: UInt64
    seat: UInt32
    part: UInt32
    root: Hash32


class Batch(TypedMessage):
    """Accepted groups handed to the trainer for step `step`. `groups_root` is over (submission id, group index)."""

    solidity_type: ClassVar[str] = "Batch(uint64 poolId,uint64 number,uint64 step,bytes32 groupsRoot)"
    pool_id: UInt64
    number: UInt64
    step: UInt64
    groups_root: Hash32


class WeightsRelease(TypedMessage):
    """The trainer publishes a policy version; `manifest_hash` is on chain as well."""

    solidity_type: ClassVar[str] = "WeightsRelease(uint64 poolId,uint64 policyVersion,bytes32 manifestHash)"
    pool_id: UInt64
    policy_version: UInt64
    manifest_hash: Hash32


class ShardListing(TypedMessage):
    """The trainer says which shards of a policy version are finished while later ones are still being written.

    `shards_hash` is the canonical hash of `{number: shard}` with all of them, as the listing has it.
    """

    solidity_type: ClassVar[str] = (
        "ShardListing(uint64 poolId,uint64 policyVersion,uint64 numShards,bytes32 shardsHash)"
    )
    pool_id: UInt64
    policy_version: UInt64
    num_shards: UInt64
    shards_hash: Hash32


class DownloadToken(TypedMessage):
    """Whoever shows this may take a pool's weights from relays that trust its signer, until `expiry` (Unix seconds).

    `holder` is whom it was made for.
    """

    solidity_type: ClassVar[str] = "DownloadToken(uint64 poolId,address holder,uint64 expiry)"
    pool_id: UInt64
    holder: Address
    expiry: UInt64


class EarningsAttestation(TypedMessage):
    """A seat recomputed the gross cumulative earnings of all providers up to `epoch` and got this root."""

    solidity_type: ClassVar[str] = (
        "EarningsAttestation(uint64 poolId,uint64 epoch,bytes32 root,uint128 totalWei,uint32 seat)"
    )
    pool_id: UInt64
    epoch: UInt64
    root: Hash32
    total_wei: Wei
    seat: UInt32


class EpochAttestation(TypedMessage):
    """A seat holds the log whose head this is, and stands in for a coordinator that is silent (`Ledger.silentTime`)."""

    solidity_type: ClassVar[str] = "EpochAttestation(uint64 poolId,uint64 epoch,uint64 size,bytes32 root,uint32 seat)"
    pool_id: UInt64
    epoch: UInt64
    size: UInt64
    root: Hash32
    seat: UInt32


class HttpRequest(TypedMessage):
    """What the signature of an HTTP request covers; `nonce` keeps a request from acting twice."""

    solidity_type: ClassVar[str] = (
        "HttpRequest(string method,string host,string path,string query,bytes32 bodyHash,uint64 expiry,string nonce)"
    )
    method: str
    host: str
    path: str
    query: str
    body_hash: Hash32
    expiry: UInt64
    nonce: str = ""


M = TypeVar("M", bound=TypedMessage)


class Signed(BaseModel, Generic[M]):
    """A message with its signature: what is sent and stored.

    Example: `Signed.by(signer, task, domain).check(coordinator_address, domain)`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema_version: SchemaVersion = PROTOCOL_VERSION
    message: M
    signature: Signature

    @classmethod
    def by(cls, signer: Signer, message: M, domain: SigningDomain) -> Signed[M]:
        return cls(message=message, signature=signer.sign(message, domain))

    def check(self, signer: str, domain: SigningDomain) -> M:
        """The message, if `signer` signed it in `domain`; raises SignatureInvalid otherwise."""
        check_signature(self.message, self.signature, signer, domain)
        return self.message


class CheckResult(BaseModel):
    """One check of the pipeline: what it measured against what it allows."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    check: str
    outcome: UInt8
    reason: str | None = None
    value: float | None = None
    reject_threshold: float | None = None
    slash_threshold: float | None = None
    detail: str = ""
    num_audited: int = 0


class StampReview(BaseModel):
    """What a seat that was called up later found of an earlier verdict's work stamp (`protocol/stamp.py`).

    `round` and `seat` say whose; `largest_difference` in nats, None where a stamp is missing or none was due.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    round: UInt32
    seat: UInt32
    agrees: bool
    largest_difference: float | None = None


class Evidence(BaseModel):
    """All check results behind a verdict; `Verdict.evidence_hash` is canonical_hash of its JSON.

    `num_audited` of `num_rollouts` went through the model (0: the cheap checks decided), so their quotient is the share
    that the checks after them are about. `work_stamp` answers the seat's challenge, and is empty where the cheap checks
    decided; `stamp_reviews` are about the verdicts on this submission that were revealed before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema_version: SchemaVersion = PROTOCOL_VERSION
    submission_id: Hash32
    seed: Hash32
    num_units: UInt64
    num_rollouts: UInt64 = 0
    num_audited: UInt64 = 0
    checks: tuple[CheckResult, ...]
    work_stamp: Annotated[tuple[float, ...], Field(max_length=64)] = ()
    stamp_reviews: Annotated[tuple[StampReview, ...], Field(max_length=MAX_STAMP_REVIEWS)] = ()

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
