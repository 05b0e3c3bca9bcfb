"""What a report stands on: a pool's log, read once from end to end under heads of the chain, or the coordinator's own.

In: URLs. Out: `CheckedLog`. Where there is no chain, what comes out is consistent in itself, and anchored to nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from protocol.api import LogEntry, PoolInfo
from protocol.chain.contracts import Contracts
from protocol.chain.pool import ChainPool, LogHead
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.errors import VerificationFailed
from protocol.signing import SigningDomain
from verifier.audit.log.log_reader import heads_on_chain, read_log
from verifier.audit.options import check_ledger
from verifier.chain import NUM_HEADS_ON_CHAIN
from verifier.history import ReadEntries

NOT_ANCHORED = "the coordinator's own heads: consistent, not anchored (give --chain)"


@dataclass(frozen=True)
class CheckedLog:
    """A pool and its log. `chain` is None where the heads are the coordinator's word; `anchor` says which they are."""

    pool: PoolInfo
    domain: SigningDomain
    read_entries: ReadEntries
    heads: Sequence[LogHead]
    anchor: str
    chain: ChainPool | None = None

    @property
    def num_leaves(self) -> int:
        return self.heads[-1].size if self.heads else 0

    @property
    def num_epochs(self) -> int:
        """How many the heads cover."""
        return self.heads[-1].epoch + 1 if self.heads else 0

    def events(self) -> Iterator[tuple[int, LogEntry]]:
        """(epoch, event) of every leaf; to be believed once it has ended. Raises VerificationFailed."""
        return read_log(self.read_entries, self.heads)

    def as_json(self) -> dict[str, Any]:
        return {
            "pool_id": self.pool.pool_id,
            "anchored": self.chain is not None,
            "anchor": self.anchor,
            "num_epochs": self.num_epochs,
            "num_leaves": self.num_leaves,
            "root": self.heads[-1].root if self.heads else None,
        }

    def line(self) -> str:
        """For a terminal."""
        return f"log of {self.num_leaves} leaves, {self.num_epochs} epochs; {self.anchor}"


@contextmanager
def checked_log(client: CoordinatorClient, chain: str | None, ledger: str | None) -> Iterator[CheckedLog]:
    """The log that a coordinator serves. Nothing of it is read yet."""
    check_ledger(chain, ledger)
    pool = client.pool()
    if chain is None:
        domain = SigningDomain(pool.chain_id, pool.contracts.ledger, pool.deployment_salt)
        yield CheckedLog(pool, domain, client.entries, own_heads(client), NOT_ANCHORED)
        return
    contracts = Contracts.connect(chain, ledger or pool.contracts.ledger, SystemClock())
    with closing(contracts.client.rpc):
        yield anchored_log(client, pool, contracts)


def anchored_log(client: CoordinatorClient, pool: PoolInfo, contracts: Contracts) -> CheckedLog:
    anchor = f"anchored: chain {contracts.client.chain_id}, Ledger {contracts.addresses.ledger}"
    heads = heads_on_chain(contracts, pool.pool_id)
    return CheckedLog(pool, contracts.domain, client.entries, heads, anchor, ChainPool(contracts, pool.pool_id))


def own_heads(client: CoordinatorClient) -> list[LogHead]:
    """The heads that the coordinator says are on chain: as many of the newest as a chain would have."""
    heads: deque[LogHead] = deque(maxlen=NUM_HEADS_ON_CHAIN)
    after, size = -1, 0
    while page := client.epochs(after):
        for view in page:
            if view.epoch <= after or view.size <= size:
                why = f"epoch {view.epoch} with {view.size} leaves after epoch {after} with {size}"
                raise VerificationFailed("the coordinator's epochs have no order", why)
            after, size = view.epoch, view.size
            if view.block is not None:
                heads.append(LogHead(view.epoch, view.size, view.root))
    return list(heads)
