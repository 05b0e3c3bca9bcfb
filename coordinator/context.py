"""What every request and every stage of the loop works with, in one small container.

In: configuration, key, clock, chain client. Out: `Coordinator`, whose `reading()` and `writing()` are the
only ways to the database. Tests hand in their own clock and a fake chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from coordinator.blobs import BlobStore
from coordinator.config import CoordinatorConfig
from coordinator.db.engine import WRITES
from coordinator.pieces import PieceStore
from coordinator.refusals import Refusals
from protocol.api import ContractAddresses
from protocol.chain.contracts import Contracts
from protocol.clock import Clock
from protocol.merkle.note import NoteSigner
from protocol.signing import Signer, SigningDomain


@dataclass(frozen=True)
class Deployment:
    """The contracts that this coordinator serves; fixed for the life of the process."""

    domain: SigningDomain
    contracts: ContractAddresses


class Coordinator:
    """Dependencies, and nothing that decides."""

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        engine: Engine,
        blobs: BlobStore,
        deployment: Deployment,
        signer: Signer,
        clock: Clock,
        chain: Contracts,
        log_signer: NoteSigner | None = None,
    ) -> None:
        self.config = config
        self.engine = engine
        self.blobs = blobs
        self.pieces = PieceStore(config.data_dir / "pieces")
        self.deployment = deployment
        self.signer = signer
        self.clock = clock
        self.chain = chain
        self.refusals = Refusals()
        self.log_signer = log_signer
        self._readers = sessionmaker(engine, expire_on_commit=False)
        self._writers = sessionmaker(engine.execution_options(**WRITES), expire_on_commit=False)

    @property
    def domain(self) -> SigningDomain:
        return self.deployment.domain

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session on one snapshot; nothing that it changes is kept."""
        with self._readers() as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that holds the write lock: committed at the end, undone by any error."""
        with self._writers.begin() as session:
            yield session
