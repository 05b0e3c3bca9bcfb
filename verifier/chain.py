"""What a verifier asks of the chain, and what it tells it.

In: a pool. Out: answers of the contracts, never of the coordinator: `protocol/chain/pool.py:ChainPool` gives them;
tests use a table of answers instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from protocol.chain.cases import Accusation, CaseRecord, DisputeRecord, JuryRecord, JuryTerms, Summons, Vote
from protocol.chain.pool import LogHead, PoolRecord, VersionRecord
from protocol.chain.terms import PriceTerms
from protocol.draw import Seat
from protocol.signing import SigningDomain
from protocol.wire import Verdict

NUM_HEADS_ON_CHAIN = 2048
"""Ledger.RING: how many heads, and beacons, the contract remembers."""


class PoolChain(Protocol):
    """One pool's chain state, confirmed blocks only."""

    @property
    def domain(self) -> SigningDomain: ...

    def time(self) -> int:
        """Chain seconds."""
        ...

    def record(self) -> PoolRecord: ...

    def num_epochs(self) -> int:
        """How many epochs are anchored; the open one has this number."""
        ...

    def heads(self, start: int) -> Sequence[LogHead]:
        """Anchored heads from epoch `start` on, in order."""
        ...

    def epoch_times(self, epochs: Collection[int]) -> dict[int, int]:
        """When these epochs were committed, in chain seconds."""
        ...

    def terms_since(self, time: int) -> Sequence[PriceTerms]:
        """The prices that were in force at `time` (chain seconds) or later, oldest first."""
        ...

    def epoch_beacon(self, epoch: int) -> str | None:
        """beacon(epoch), None until it is sealed."""
        ...

    def version(self, policy_version: int) -> VersionRecord: ...

    def seats(self) -> Sequence[Seat]:
        """Every seat of the pool in order of index, released ones too."""
        ...

    def provider_of(self, node: str) -> str:
        """Whose node it is, removed ones too."""
        ...

    def case_of(self, submission_id: str) -> CaseRecord: ...

    def accuse(self, accusation: Accusation) -> None:
        """Open a case. Raises TransactionReverted where the Court refuses it."""
        ...

    def implicated_of(self, submission_id: str) -> tuple[int, ...]:
        """The seats that accepted the submission and answer for it in the case."""
        ...

    def implicate(self, submission_id: str, verdict: Verdict, signature: str) -> None:
        """Name another one. Raises TransactionReverted."""
        ...

    def enforce(self, submission_id: str) -> None:
        """Carry out a case whose appeal period is over. Raises TransactionReverted."""
        ...

    def juries_summoned(self, first_block: int | None) -> tuple[list[Summons], int]:
        """Summons of juries from that block on, and the first block that wasn't looked at."""
        ...

    def jury_of(self, case_id: str) -> JuryRecord | None: ...

    def jury_beacon(self, beacon_block: int) -> str | None: ...

    def jury_terms(self) -> JuryTerms: ...

    def parties_of(self, case_id: str) -> tuple[str, ...]:
        """Whose seats can't sit on a case's jury."""
        ...

    def call_jury(self, case_id: str, draw_indexes: Sequence[int]) -> None: ...

    def commit_vote(self, case_id: str, position: int, commitment: str) -> None: ...

    def reveal_vote(self, case_id: str, position: int, vote: Vote, salt: str) -> None: ...

    def resolve(self, case_id: str) -> None: ...

    def dispute_of(self, case_id: str) -> DisputeRecord | None:
        """The open dispute over an earnings root; None where the case is none."""
        ...

    def final_epoch_before(self, epoch: int) -> int:
        """Of the newest root before that of `epoch` which nobody can dispute any more; -1 where there is none."""
        ...

    def resolve_dispute(self, epoch: int) -> None: ...
