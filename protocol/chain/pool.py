"""One pool as the chain has it: the answers that roles ask of the contracts, typed.

In: `Contracts`, a pool's id, how many blocks must stand on what is read, and a lane for who sends. Out: records of
confirmed blocks. What verifiers and trainers tell the chain is here as well; each such call returns once it's
mined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from protocol.chain.block import Receipt
from protocol.chain.contracts import Contracts, Read
from protocol.chain.lane import Lane
from protocol.draw import Seat
from protocol.errors import UsageError
from protocol.signing import SigningDomain
from protocol.wire import ZERO_HASH, Submission, Verdict

PAGE_READS = 200
"""Views asked in one request."""
MAX_ROOTS = 64


@dataclass(frozen=True)
class PoolRecord:
    """The pool's terms and roles. `rules_hashes` are all rules that a lease which isn't settled may have."""

    pool_id: int
    coordinator: str
    trainer: str
    rules_hashes: frozenset[str]
    prices_wei: frozenset[int]
    """What a unit of such a lease may earn its provider, and `verify_prices_wei` a validator."""
    verify_prices_wei: frozenset[int]
    accept_quorum: int
    slash_quorum: int
    draw_limit: int
    reaudit_bps: int
    """Share of settled submissions that are judged again, in hundredths of a percent."""
    accuse_seconds: int
    """How long after its epoch's commit a submission can be accused."""


@dataclass(frozen=True)
class LogHead:
    """An anchored head of the pool's log: after `epoch`, `size` leaves under `root`."""

    epoch: int
    size: int
    root: str


@dataclass(frozen=True)
class VersionRecord:
    """A published policy version; `beacon_hash` is None until it is sealed."""

    policy_version: int
    manifest_hash: str
    beacon_block: int
    beacon_hash: str | None


class CaseState(IntEnum):
    """Where a case before the Court stands (Court.CaseState)."""

    NONE = 0
    ACCUSED = 1
    APPEALED = 2
    UPHELD = 3
    OVERTURNED = 4
    LAPSED = 5


@dataclass(frozen=True)
class CaseRecord:
    """A case as the Court has it; `deadline` is the appeal's, in chain seconds, `held_wei` of the node's stake."""

    state: CaseState
    deadline: int
    held_wei: int = 0


@dataclass(frozen=True)
class EarningsRecord:
    """An earnings root on chain: of payments up to `epoch`, claimable from `claimable_time` (chain seconds) on."""

    epoch: int
    root: str
    claimable_time: int


@dataclass(frozen=True)
class Inclusion:
    """That the log received a submission in `epoch` (Court.Inclusion); `document` is the event's JSON as 0x-hex."""

    epoch: int
    leaf_index: int
    document: str
    proof: tuple[str, ...]


@dataclass(frozen=True)
class Accusation:
    """What opens a case (Court.Accusation): as many verdicts as the slash quorum, in ascending order of draws."""

    submission: Submission
    node_signature: str
    inclusion: Inclusion
    verdicts: tuple[Verdict, ...]
    signatures: tuple[str, ...]
    draw_indexes: tuple[int, ...]


class ChainPool:
    """A pool's chain state.

    Example: `ChainPool(contracts, 1).epoch_beacon(0)`.
    """

    def __init__(self, contracts: Contracts, pool_id: int, *, confirmations: int = 1, lane: Lane | None = None) -> None:
        self.contracts = contracts
        self.pool_id = pool_id
        self._confirmations = confirmations
        self._lane = lane

    @property
    def domain(self) -> SigningDomain:
        return self.contracts.domain

    def time(self) -> int:
        """Chain seconds, of the newest confirmed block."""
        return self.contracts.client.confirmed_head(self._confirmations).timestamp

    def record(self) -> PoolRecord:
        config, announced, terms = self._read_all(
            Read("pools", "configOf", (self.pool_id,)),
            Read("pools", "announcedTerms", (self.pool_id,)),
            Read("pools", "caseTerms", (self.pool_id,)),
        )

        def upcoming(term: str) -> tuple[int, ...]:
            return (announced[term],) if announced["rules_hash"] != ZERO_HASH else ()

        return PoolRecord(
            pool_id=self.pool_id,
            coordinator=config["coordinator"],
            trainer=config["trainer"],
            rules_hashes=frozenset({config["rules_hash"], announced["rules_hash"]} - {ZERO_HASH}),
            prices_wei=frozenset({config["price"], *upcoming("price")}),
            verify_prices_wei=frozenset({config["verify_price"], *upcoming("verify_price")}),
            accept_quorum=config["accept_quorum"],
            slash_quorum=config["slash_quorum"],
            draw_limit=config["draw_limit"],
            reaudit_bps=config["reaudit_bps"],
            accuse_seconds=terms["accuse_period"],
        )

    def num_epochs(self) -> int:
        """How many epochs are anchored; the open one has this number."""
        return int(self._read("ledger", "epochCount", self.pool_id))

    def heads(self, start: int) -> Sequence[LogHead]:
        """Anchored heads from epoch `start` on, in order. Raises TransactionReverted for those past the ring."""
        epochs = range(start, self.num_epochs())
        answers = self._read_pages([Read("ledger", "epochOf", (self.pool_id, epoch)) for epoch in epochs])
        return [LogHead(epoch, a["size"], a["root"]) for epoch, a in zip(epochs, answers, strict=True)]

    def epoch_beacon(self, epoch: int) -> str | None:
        """beacon(epoch), None until it is sealed. Raises TransactionReverted where the ring has forgotten it."""
        if epoch >= self.num_epochs():
            return None
        beacon = str(self._read("ledger", "epochBeacon", self.pool_id, epoch))
        return None if beacon == ZERO_HASH else beacon

    def num_versions(self) -> int:
        """How many policy versions are published."""
        return int(self._read("ledger", "numVersions", self.pool_id))

    def version(self, policy_version: int) -> VersionRecord:
        """Raises TransactionReverted where it isn't published."""
        found = self._read("ledger", "versionOf", self.pool_id, policy_version)
        beacon = None if found["beacon_hash"] == ZERO_HASH else found["beacon_hash"]
        return VersionRecord(policy_version, found["manifest_hash"], found["beacon_block"], beacon)

    def manifest_hash(self, policy_version: int) -> str | None:
        """What the chain has for this version; None before it is published."""
        return self.version(policy_version).manifest_hash if policy_version < self.num_versions() else None

    def seats(self) -> Sequence[Seat]:
        """Every seat of the pool in order of index, released ones too."""
        count = int(self._read("registry", "numSeats", self.pool_id))
        answers = self._read_pages([Read("registry", "seatOf", (self.pool_id, index)) for index in range(count)])
        return [
            Seat(index, found["validator"], found["active_from"], found["active_until"])
            for index, found in enumerate(answers)
        ]

    def provider_of(self, node: str) -> str:
        """Whose node it is, removed ones too; zero where nobody added it."""
        return str(self._read("registry", "ownerOf", node))

    def allotment_wei(self, node: str) -> int:
        """Stake that backs the node in this pool."""
        return int(self._read("registry", "allotment", node, self.pool_id))

    def case_of(self, submission_id: str) -> CaseRecord:
        found = self._read("court", "caseOf", submission_id)
        return CaseRecord(CaseState(found["state"]), found["deadline"], found["held_stake"])

    def earnings_since(self, epoch: int, most: int = MAX_ROOTS) -> list[EarningsRecord]:
        """The newest roots that cover payments of `epoch`, at most so many, oldest first: each costs a call."""
        number, found = self._read("ledger", "newestEarnings", self.pool_id)
        roots: list[EarningsRecord] = []
        while found["root"] != ZERO_HASH and number >= epoch and len(roots) < most:
            roots.insert(0, EarningsRecord(number, found["root"], found["claimable_time"]))
            if found["previous_epoch"] == number:
                break
            number = found["previous_epoch"]
            found = self._read("ledger", "earningsOf", self.pool_id, number)
        return roots

    def claimed_wei(self, account: str) -> int:
        """What the pool has paid to an account."""
        return int(self._read("ledger", "claimed", self.pool_id, account))

    def withheld_wei(self, account: str) -> int:
        """Of an account's earnings, by cases: held by open ones, deducted by upheld ones."""
        return int(self._read("ledger", "withheld", self.pool_id, account))

    def publish_weights(self, policy_version: int, manifest_hash: str) -> None:
        """Publish a version. Raises TransactionReverted where it's out of order or published already."""
        self._send("ledger", "publishWeights", self.pool_id, policy_version, manifest_hash)

    def accuse(self, accusation: Accusation) -> None:
        """Open a case. Raises TransactionReverted where the Court refuses it."""
        self._send("court", "accuse", accusation)

    def enforce(self, submission_id: str) -> None:
        """Carry out a case whose appeal period is over. Raises TransactionReverted."""
        self._send("court", "enforce", submission_id)

    def _send(self, contract: str, function: str, *arguments: Any) -> Receipt:
        if self._lane is None:
            raise UsageError("this process has no account to send from", f"{contract}.{function}")
        return self.contracts.send(self._lane, contract, function, *arguments)

    def _read(self, contract: str, function: str, *arguments: Any) -> Any:
        return self.contracts.read(contract, function, *arguments, block=self._block())

    def _read_all(self, *reads: Read) -> list[Any]:
        return self.contracts.read_all(reads, self._block())

    def _read_pages(self, reads: Sequence[Read]) -> list[Any]:
        block = self._block()
        pages = [reads[start : start + PAGE_READS] for start in range(0, len(reads), PAGE_READS)]
        return [answer for page in pages for answer in self.contracts.read_all(page, block)]

    def _block(self) -> int | str:
        """The newest confirmed block."""
        if self._confirmations <= 1:
            return "latest"
        return self.contracts.client.confirmed_head(self._confirmations).number
