"""The whole log in order: each leaf hashed again, each head held against what is trusted, and none of it kept.

In: entries of a coordinator, heads that the chain anchors. Out: events with the epoch that each belongs to. Memory is
that of a page and of the tree's right edge, however long the log is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.api import LogEntry
from protocol.chain.contracts import Contracts
from protocol.chain.pool import ChainPool, LogHead
from protocol.merkle.history import Frontier
from verifier.chain import NUM_HEADS_ON_CHAIN
from verifier.history import ReadEntries, leaves_up_to

CLOSED = "epoch.closed"


def read_log(read_entries: ReadEntries, heads: Sequence[LogHead]) -> Iterator[tuple[int, LogEntry]]:
    """(epoch, event) for every leaf up to the last of `heads`, in order.

    What came out is to be believed once the iterator has ended: a head vouches for the leaves before it. Before the
    first head, which is all that the chain still has of its epochs, an epoch ends with its own leaf. Raises
    VerificationFailed where the log isn't the one under these heads.
    """
    frontier, num_closed = Frontier(), 0
    for head in heads:
        for entry, _ in leaves_up_to(head, frontier, read_entries):
            yield (min(num_closed, head.epoch) if head is heads[0] else head.epoch), entry
            num_closed += entry.event.get("type") == CLOSED


def heads_on_chain(contracts: Contracts, pool_id: int) -> Sequence[LogHead]:
    """Every head that the chain still has, oldest first; the first one vouches for what came before it."""
    chain = ChainPool(contracts, pool_id)
    return chain.heads(max(0, chain.num_epochs() - NUM_HEADS_ON_CHAIN))
