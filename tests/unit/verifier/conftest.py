"""Builders for the verifier's tests: a table in place of the chain, a log in place of the coordinator's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protocol.api import LogEntry
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.chain.cases import Summons
from protocol.chain.pool import LogHead, PoolRecord, VersionRecord
from protocol.chain.terms import PriceTerms, in_force
from protocol.draw import Seat
from protocol.merkle.history import MemoryLog, event_leaf_hash_of
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer, SigningDomain
from protocol.wire import ZERO_HASH, Evidence, Signed, Verdict
from verifier.store import open_store
from verifier.verdicts import KeptVerdict

POOL_ID = 1
PROVIDER = "0x" + "77" * 20


@dataclass
class ChainTable:
    """A chain that answers from memory: what `verifier.chain.PoolChain` asks for."""

    domain: SigningDomain
    pool: PoolRecord
    seat_list: list[Seat] = field(default_factory=list)
    head_list: list[LogHead] = field(default_factory=list)
    beacons: dict[int, str] = field(default_factory=dict)
    versions: dict[int, VersionRecord] = field(default_factory=dict)
    providers: dict[str, str] = field(default_factory=dict)
    terms: list[PriceTerms] = field(default_factory=lambda: [PriceTerms(0, 1, 2)])
    final_epoch: int = -1

    def time(self) -> int:
        return 1_000

    def record(self) -> PoolRecord:
        return self.pool

    def num_epochs(self) -> int:
        return len(self.head_list)

    def heads(self, start: int) -> Sequence[LogHead]:
        return self.head_list[start:]

    def epoch_times(self, epochs: Collection[int]) -> dict[int, int]:
        """A hundred seconds apart."""
        return {epoch: 1_000 + 100 * epoch for epoch in epochs}

    def terms_since(self, time: int) -> Sequence[PriceTerms]:
        return in_force(self.terms, time)

    def final_epoch_before(self, epoch: int) -> int:
        return self.final_epoch

    def epoch_beacon(self, epoch: int) -> str | None:
        return self.beacons.get(epoch)

    def version(self, policy_version: int) -> VersionRecord:
        return self.versions[policy_version]

    def seats(self) -> Sequence[Seat]:
        return self.seat_list

    def provider_of(self, node: str) -> str:
        return self.providers.get(node, PROVIDER)

    def juries_summoned(self, first_block: int | None) -> tuple[list[Summons], int]:
        return [], 1


@dataclass
class LogTable:
    """An honest coordinator's log."""

    entries: list[LogEntry] = field(default_factory=list)
    tree: MemoryLog = field(default_factory=MemoryLog)

    def append(self, kind: str, subject: str = ZERO_HASH, time: int = 100, **data: Any) -> LogEntry:
        index = len(self.entries)
        event = {"schema_version": 1, "index": index, "type": kind, "subject": subject, "time": time, "data": data}
        event_hash = hex0x(sha256(canonical_json(event)))
        leaf = event_leaf_hash_of(subject, event_hash)
        entry = LogEntry(index=index, subject=subject, event_hash=event_hash, leaf_hash=leaf, event=event)
        self.entries.append(entry)
        self.tree.append(leaf)
        return entry

    def anchor(self, chain: ChainTable) -> LogHead:
        head = LogHead(len(chain.head_list), self.tree.size, self.tree.root)
        chain.head_list.append(head)
        return head

    def read(self, start: int, limit: int) -> list[LogEntry]:
        return self.entries[start : start + limit]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = open_store(tmp_path)
    yield db
    db.close()


@pytest.fixture
def log() -> LogTable:
    return LogTable()


@pytest.fixture
def coordinator(make_signer: Callable[[int], Signer]) -> Signer:
    return make_signer(101)


@pytest.fixture
def chain(domain: SigningDomain, coordinator: Signer, make_signer: Callable[[int], Signer]) -> ChainTable:
    pool = PoolRecord(
        pool_id=POOL_ID,
        coordinator=coordinator.address,
        trainer=make_signer(102).address,
        rules_hashes=frozenset(),
        prices_wei=frozenset({1}),
        verify_prices_wei=frozenset({2}),
        accept_quorum=1,
        slash_quorum=2,
        draw_limit=8,
        reaudit_bps=0,
        accuse_seconds=100,
        lease_seconds=60,
        max_async=2,
    )
    return ChainTable(domain, pool)


@pytest.fixture
def make_verdict(make_signer: Callable[[int], Signer], domain: SigningDomain) -> Callable[..., KeptVerdict]:
    def make(number: int, outcome: Outcome = Outcome.ACCEPT, salt: int = 1, round_number: int = 0) -> KeptVerdict:
        submission_id = f"0x{number:064x}"
        evidence = Evidence(submission_id=submission_id, seed="0x" + "5e" * 32, num_units=7, checks=())
        verdict = Verdict(
            submission_id=submission_id,
            pool_id=1,
            epoch=3,
            round=round_number,
            seat=2,
            outcome=outcome,
            reason=0 if outcome is Outcome.ACCEPT else RejectReason.TOPLOC_MISMATCH.code,
            rules_hash="0x" + "44" * 32,
            evidence_hash="0x" + "55" * 32,
        )
        return KeptVerdict(Signed[Verdict].by(make_signer(5), verdict, domain), evidence, f"0x{salt:064x}")

    return make
