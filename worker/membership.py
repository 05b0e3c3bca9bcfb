"""This node in one pool: who it is, whom it talks to, and under which signing domain.

In: configuration and the node's key. Out: `Membership`, once the coordinator's description of the pool
agrees with the chain. Tests put one together by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from protocol.chain.pool import PoolRecord, VersionRecord
from protocol.client import CoordinatorClient
from protocol.signing import Signer, SigningDomain


class PoolChain(Protocol):
    """One pool's chain state, from confirmed blocks; `protocol.chain.pool.ChainPool` in earnest."""

    def time(self) -> int:
        """Seconds of the newest block: what deadlines are measured by."""
        ...

    def record(self) -> PoolRecord: ...

    def num_epochs(self) -> int:
        """How many epochs of the pool's log are anchored; the open one has this number."""
        ...

    def version(self, policy_version: int) -> VersionRecord:
        """Raises ChainError where the chain has no such version yet."""
        ...


@dataclass(frozen=True)
class Membership:
    """Example: `membership.coordinator.lease(3).check(membership.chain.record().coordinator, membership.domain)`."""

    pool_id: int
    signer: Signer
    domain: SigningDomain
    coordinator: CoordinatorClient
    chain: PoolChain

    @property
    def node(self) -> str:
        return self.signer.address
