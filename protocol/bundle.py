"""The proof bundle: all that an auditor needs to judge one submission, in one file.

In: what a coordinator holds of a submission. Out: `ProofBundle`, a JSON document that
`proofpool audit verify --bundle FILE` checks offline, with or without a chain to anchor it to.
Nothing in a bundle is believed because it is in the bundle: `ChainFacts` are the coordinator's claims until the
auditor has read the same from a chain, or knows one of the heads already.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, StringConstraints

from protocol.api import ContractAddresses, Freshness, InclusionProof, LogEntry
from protocol.rules import Rules
from protocol.signing import SigningDomain
from protocol.wire import (
    PROTOCOL_VERSION,
    Address,
    Evidence,
    Hash32,
    Receipt,
    Renewal,
    SchemaVersion,
    Signed,
    Submission,
    Task,
    UInt32,
    UInt64,
    Verdict,
    VerdictCommitment,
    Wei,
)

HexBytes = Annotated[str, StringConstraints(pattern=r"^0x([0-9a-f]{2})*$", max_length=1 << 20)]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HeadFact(_Shape):
    """The log head that `commitEpoch` anchored, and the beacon that its block gave (None: not stored yet)."""

    epoch: UInt64
    size: UInt64
    root: Hash32
    beacon_hash: Hash32 | None


class SeatFact(_Shape):
    """A bonded seat; active in epochs from `active_from_epoch` up to, not including, `active_until_epoch`."""

    seat: UInt32
    validator: Address
    active_from_epoch: UInt64
    active_until_epoch: UInt64 | None


class VersionFact(_Shape):
    """A policy version as it stands on chain."""

    policy_version: UInt64
    manifest_hash: Hash32
    beacon_block: UInt64
    beacon_hash: Hash32 | None


class CaseFact(_Shape):
    """The Court's case about the submission: accused, appealed, challenged, upheld, overturned or lapsed.

    `round` is the one that accused, 2 for a challenge. `held_wei` is what it froze of the node's allotment, which is
    the most that it takes.
    """

    state: str
    round: UInt32
    reason: UInt32
    provider: Address
    held_wei: Wei


class EarningsFact(_Shape):
    """The newest earnings root on chain, and what the provider has drawn from it."""

    epoch: UInt64
    root: Hash32
    total_wei: Wei
    claimed_wei: Wei


class ChainFacts(_Shape):
    """What a chain says about one submission's pool, node, epochs and seats."""

    chain_id: UInt64
    contracts: ContractAddresses
    deployment_salt: Hash32
    pool_id: UInt64
    coordinator: Address
    trainer: Address
    accept_quorum: UInt32
    slash_quorum: UInt32
    reaudit_bps: UInt32
    provider: Address
    version: VersionFact
    heads: tuple[HeadFact, ...]
    seats: tuple[SeatFact, ...]
    case: CaseFact | None
    earnings: EarningsFact | None

    @property
    def domain(self) -> SigningDomain:
        return SigningDomain(self.chain_id, self.contracts.ledger, self.deployment_salt)

    def head(self, epoch: int) -> HeadFact | None:
        return next((head for head in self.heads if head.epoch == epoch), None)


class LoggedEvent(_Shape):
    """A leaf of the log. `inclusion` is None while no epoch has anchored it."""

    entry: LogEntry
    inclusion: InclusionProof | None


class RevealedVerdict(_Shape):
    """A verdict, the seat's commitment to it, and the way from one to the other."""

    verdict: Signed[Verdict]
    evidence: Evidence
    validator: Address
    draw: UInt32
    salt: Hash32
    path: tuple[Hash32, ...]
    commitment: Signed[VerdictCommitment]
    committed: LoggedEvent
    revealed: LoggedEvent


class EarningsProof(_Shape):
    """That `account` had earned `cumulative_wei` under an earnings root (OpenZeppelin StandardMerkleTree)."""

    account: Address
    cumulative_wei: Wei
    epoch: UInt64
    root: Hash32
    path: tuple[Hash32, ...]


class HeadLink(_Shape):
    """That the log at `old_epoch` is a prefix of the log at the bundle's newest head (RFC 9162 consistency)."""

    old_epoch: UInt64
    path: tuple[Hash32, ...]


class BlockProof(_Shape):
    """That the chain had a head of the log by a block whose hash somebody trusts (`verifier/audit/bundle/block.py`).

    `headers`: of the epoch's block and those after it, in order. `path`: nodes of the first one's receipts' trie, from
    the root down to the receipt of its transaction number `transaction_index`. Both as RLP.
    """

    headers: Annotated[tuple[HexBytes, ...], Field(min_length=1, max_length=2048)]
    transaction_index: UInt64
    path: Annotated[tuple[HexBytes, ...], Field(max_length=64)]


class ProofBundle(_Shape):
    """One submission, from its lease to its payment or slash.

    `heads` of `chain` hold every epoch that a proof here names, newest last; `links` tie the older ones to the newest.
    """

    schema_version: SchemaVersion = PROTOCOL_VERSION
    submission: Signed[Submission]
    task: Signed[Task]
    receipt: Signed[Receipt]
    rules: Rules
    file: Base64Bytes
    received: LoggedEvent
    verdicts: tuple[RevealedVerdict, ...]
    settled: LoggedEvent | None
    earnings: EarningsProof | None
    links: tuple[HeadLink, ...]
    chain: ChainFacts
    freshness: Freshness
    renewal: Signed[Renewal] | None = None
    """Of the lease; None where the task's own deadline held."""
    block: BlockProof | None = None
    """None where it was made without a chain."""
