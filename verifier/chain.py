"""What a verifier asks of the chain, and the two things it tells it.

In: a pool. Out: answers of the contracts, never of the coordinator. `protocol/chain` has the connection; tests
use a table of answers instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from protocol.draw import Seat
from protocol.signing import SigningDomain
from protocol.wire import Submission, Verdict


@dataclass(frozen=True)
class PoolRecord:
    """The pool as the chain has it. `rules_hashes` are all rules that its record has named so far."""

    pool_id: int
    coordinator: str
    trainer: str
    rules_hashes: frozenset[str]
    accept_quorum: int
    slash_quorum: int
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
    """A case as the Court has it; `deadline` is the appeal's, in chain seconds."""

    state: CaseState
    deadline: int


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

    def enforce(self, submission_id: str) -> None:
        """Carry out a case whose appeal period is over. Raises TransactionReverted."""
        ...
