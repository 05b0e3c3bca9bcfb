"""What a verifier asks of the chain, and the two things it tells it.

In: a pool. Out: answers of the contracts, never of the coordinator. `protocol/chain` has the connection; tests
use a table of answers instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.draw import Seat
from protocol.signing import SigningDomain


@dataclass(frozen=True)
class PoolRecord:
    """The pool as the chain has it. `rules_hashes` are all rules that its record has named so far."""

    pool_id: int
    coordinator: str
    trainer: str
    rules_hashes: frozenset[str]
    accept_quorum: int
    slash_quorum: int


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

    def provider_of(self, node: str) -> str: ...
