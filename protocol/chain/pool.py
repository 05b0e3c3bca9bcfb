"""One pool as the chain has it: the answers that roles ask of the contracts, typed.

In: `Contracts`, a pool's id, how many blocks must stand on what is read, and a lane for who sends. Out: records of
confirmed blocks. What verifiers and trainers tell the chain is here as well; each such call returns once it's
mined.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.chain.block import Receipt
from protocol.chain.cases import (
    Accusation,
    CaseRecord,
    Challenge,
    DisputeRecord,
    Inclusion,
    JuryRecord,
    JuryTerms,
    Summons,
    Vote,
)
from protocol.chain.contracts import Contracts, Read
from protocol.chain.lane import Lane
from protocol.chain.terms import PriceBook, PriceTerms
from protocol.draw import Seat
from protocol.errors import UsageError
from protocol.signing import SigningDomain
from protocol.wire import ZERO_ADDRESS, ZERO_HASH, Verdict

PAGE_READS = 200
"""Views asked in one request."""
FOREVER = 2**64 - 1
"""When the roots that an open dispute holds can be claimed from."""
MAX_ROOTS = 64
FIRST_LOOK_PERIODS = 3
"""How many jury periods back whoever has never looked for juries looks: one to be seated in, one to vote in, one more
for what nobody has carried out. By time, since a block may take one second or twelve."""


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
    lease_seconds: int
    """How long a lease is at most."""
    max_async: int
    """How many policy versions behind a step's start its rollouts may be."""


@dataclass(frozen=True)
class LogHead:
    """An anchored head of the pool's log: after `epoch`, `size` leaves under `root`.

    `time`: when the chain took it, in chain seconds; 0 for a head that is known from elsewhere.
    """

    epoch: int
    size: int
    root: str
    time: int = field(default=0, compare=False)


@dataclass(frozen=True)
class VersionRecord:
    """A published policy version; `beacon_hash` is None until it is sealed."""

    policy_version: int
    manifest_hash: str
    beacon_block: int
    beacon_hash: str | None


@dataclass(frozen=True)
class EarningsRecord:
    """An earnings root on chain: of payments up to `epoch`, claimable from `claimable_time` (chain seconds) on.

    None while a dispute holds it.
    """

    epoch: int
    root: str
    claimable_time: int | None


class ChainPool:
    """A pool's chain state.

    Example: `ChainPool(contracts, 1).epoch_beacon(0)`.
    """

    def __init__(self, contracts: Contracts, pool_id: int, *, confirmations: int = 1, lane: Lane | None = None) -> None:
        self.contracts = contracts
        self.pool_id = pool_id
        self._confirmations = confirmations
        self._lane = lane
        self._prices = PriceBook(contracts, pool_id)

    @property
    def domain(self) -> SigningDomain:
        return self.contracts.domain

    def close(self) -> None:
        """Let go of the connection to the node."""
        self.contracts.client.rpc.close()

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
            lease_seconds=config["lease_max"],
            max_async=config["max_async"],
        )

    def num_epochs(self) -> int:
        """How many epochs are anchored; the open one has this number."""
        return int(self._read("ledger", "epochCount", self.pool_id))

    def heads(self, start: int) -> Sequence[LogHead]:
        """Anchored heads from epoch `start` on, in order. Raises TransactionReverted for those past the ring."""
        epochs = range(start, self.num_epochs())
        answers = self._read_pages([Read("ledger", "epochOf", (self.pool_id, epoch)) for epoch in epochs])
        return [LogHead(epoch, a["size"], a["root"], a["time"]) for epoch, a in zip(epochs, answers, strict=True)]

    def epoch_times(self, epochs: Collection[int]) -> dict[int, int]:
        """When these epochs were committed, in chain seconds. Raises TransactionReverted for those past the ring."""
        answers = self._read_pages([Read("ledger", "epochOf", (self.pool_id, epoch)) for epoch in epochs])
        return {epoch: int(found["time"]) for epoch, found in zip(epochs, answers, strict=True)}

    def terms_since(self, time: int) -> Sequence[PriceTerms]:
        """The prices that were in force at `time` (chain seconds) or later, oldest first."""
        return self._prices.since(time, self._block())

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
        return CaseRecord.of(self._read("court", "caseOf", submission_id))

    def accusers_of(self, submission_id: str) -> tuple[int, ...]:
        """The seats whose verdicts opened the case, in drawn order."""
        return tuple(self._read("court", "accusersOf", submission_id))

    def implicated_of(self, submission_id: str) -> tuple[int, ...]:
        """The seats that accepted the submission and answer for it in the case."""
        return tuple(self._read("court", "implicatedOf", submission_id))

    def juries_summoned(self, first_block: int | None) -> tuple[list[Summons], int]:
        """Summons of the pool's juries from a block on, and the first block that wasn't looked at.

        `first_block` is None at the first look, which goes `FIRST_LOOK_PERIODS` back.
        """
        newest = self.contracts.client.confirmed_head(self._confirmations)
        head, start = newest.number, first_block
        if start is None:
            since = newest.timestamp - FIRST_LOOK_PERIODS * self.jury_terms().jury_seconds
            start = self.contracts.client.first_block_since(since, head)
        logs = self.contracts.client.logs([self.contracts.addresses.jury], start, head)
        events = [(event, log.block_hash) for log in logs if (event := self.contracts.decode(log)) is not None]
        summons = [(event.arguments, block_hash) for event, block_hash in events if event.name == "JurySummoned"]
        ours = [Summons(one["case_id"], block_hash) for one, block_hash in summons if one["pool_id"] == self.pool_id]
        return ours, max(start, head + 1)

    def jury_of(self, case_id: str) -> JuryRecord | None:
        """A case's jury, seated or not; None where none was summoned."""
        return JuryRecord.of(self._read("jury", "panelOf", case_id))

    def jury_beacon(self, beacon_block: int) -> str | None:
        """What draws a jury: the hash of that block, None while it isn't confirmed."""
        head = self.contracts.client.confirmed_head(self._confirmations)
        block = self.contracts.client.block(beacon_block) if beacon_block < head.number else None
        return None if block is None else block.block_hash

    def parties_of(self, case_id: str) -> tuple[str, ...]:
        """Whose seats can't sit on a case's jury."""
        contract = "jury" if self._read("jury", "isDispute", case_id) else "court"
        return tuple(self._read(contract, "partiesOf", case_id))

    def earnings_id(self, epoch: int) -> str:
        """The id of a dispute over the earnings up to `epoch`, and of its jury."""
        return str(self._read("ledger", "earningsId", self.pool_id, epoch))

    def dispute_of(self, case_id: str) -> DisputeRecord | None:
        """The open dispute with this id over an earnings root; None where there is none."""
        found = self._read("jury", "disputeOf", case_id)
        if found["disputer"] == ZERO_ADDRESS:
            return None
        return DisputeRecord.of(found, self._read("ledger", "earningsOf", self.pool_id, found["epoch"]))

    def final_epoch_before(self, epoch: int) -> int:
        """Of the newest root before that of `epoch` which nobody can dispute any more; -1 where there is none."""
        number, found, now = epoch, self._read("ledger", "earningsOf", self.pool_id, epoch), self.time()
        while found["root"] != ZERO_HASH and found["previous_epoch"] != number:
            number = int(found["previous_epoch"])
            found = self._read("ledger", "earningsOf", self.pool_id, number)
            if now >= self._read("jury", "claimableTime", self.pool_id, found["claimable_time"]):
                return number
        return -1

    def jury_terms(self) -> JuryTerms:
        return JuryTerms.of(self._read("pools", "juryTerms", self.pool_id))

    def earnings_since(
        self, epoch: int, most: int = MAX_ROOTS, claimable_at: int | None = None
    ) -> list[EarningsRecord]:
        """The newest roots that cover payments of `epoch`, at most so many, oldest first: each costs a call.

        With `claimable_at`, in chain seconds, always the newest root, and all back to one that can be claimed then.
        Their times are the Jury's: a dispute holds all roots that aren't claimable yet.
        """
        number, found = self._read("ledger", "newestEarnings", self.pool_id)
        roots: list[tuple[int, str, int]] = []
        is_deep = claimable_at is None
        while found["root"] != ZERO_HASH and (number >= epoch or not is_deep) and len(roots) < most:
            roots.insert(0, (number, found["root"], found["claimable_time"]))
            if claimable_at is not None and not is_deep:
                is_deep = self._read("jury", "claimableTime", self.pool_id, found["claimable_time"]) <= claimable_at
            if found["previous_epoch"] == number:
                break
            number = found["previous_epoch"]
            found = self._read("ledger", "earningsOf", self.pool_id, number)
        times = self._read_all(*(Read("jury", "claimableTime", (self.pool_id, time)) for _, _, time in roots))
        return [
            EarningsRecord(number, root, None if time == FOREVER else time)
            for (number, root, _), time in zip(roots, times, strict=True)
        ]

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

    def appeal(self, submission_id: str) -> None:
        """Call a jury over an accusation; the appeal bond leaves the sender's wallet. Raises TransactionReverted."""
        self._approve("court", self.jury_terms().appeal_bond_wei)
        self._send("court", "appeal", submission_id)

    def challenge(self, challenge: Challenge) -> None:
        """Call a jury over a submission; the challenge bond leaves the sender's wallet. Raises TransactionReverted."""
        self._approve("court", self.jury_terms().challenge_bond_wei)
        parts = (challenge.submission, challenge.node_signature, challenge.inclusion)
        self._send("court", "challenge", *parts, challenge.reason, challenge.evidence_hash)

    def implicate(self, submission_id: str, verdict: Verdict, signature: str) -> None:
        """Have a seat that accepted the submission answer for it in the open case. Raises TransactionReverted."""
        self._send("court", "implicate", submission_id, verdict, signature)

    def hold_payment(self, submission_id: str, settling: Inclusion) -> None:
        """Hold what the submission may have been paid: the log accepted it. Raises TransactionReverted."""
        self._send("court", "holdPayment", submission_id, settling)

    def call_jury(self, case_id: str, draw_indexes: Sequence[int]) -> None:
        """Seat the jury, by the raw draws of `protocol.draw.jury_seats`. Raises TransactionReverted.

        Where the beacon's block is out of reach this only arms another one, whatever is given.
        """
        self._send("jury", "callJury", case_id, draw_indexes)

    def commit_vote(self, case_id: str, position: int, commitment: str) -> None:
        """Bind the juror at `position`; see `vote_commitment`. Raises TransactionReverted."""
        self._send("jury", "commitVote", case_id, position, commitment)

    def reveal_vote(self, case_id: str, position: int, vote: Vote, salt: str) -> None:
        """Show what a juror committed to. Raises TransactionReverted."""
        self._send("jury", "revealVote", case_id, position, int(vote), salt)

    def resolve(self, case_id: str) -> None:
        """Carry out what a jury found of a case, or didn't find in time. Raises TransactionReverted."""
        self._send("court", "resolve", case_id)

    def dispute_earnings(self, epoch: int) -> None:
        """Call a jury over an earnings root that can't be claimed yet; the challenge bond leaves the sender's wallet.

        Raises TransactionReverted.
        """
        self._approve("jury", self.jury_terms().challenge_bond_wei)
        self._send("jury", "disputeEarnings", self.pool_id, epoch)

    def implicate_attester(self, epoch: int, seat: int, signature: str) -> None:
        """Have a seat that attested a disputed root answer for it. Raises TransactionReverted."""
        self._send("jury", "implicateAttester", self.pool_id, epoch, seat, signature)

    def resolve_dispute(self, epoch: int) -> None:
        """Carry out what a jury found of a root, or didn't find in time. Raises TransactionReverted."""
        self._send("jury", "resolveDispute", self.pool_id, epoch)

    def _approve(self, contract: str, amount_wei: int) -> None:
        """Let a contract take a bond."""
        self._send("credits", "approve", self.contracts.address(contract), amount_wei)

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
