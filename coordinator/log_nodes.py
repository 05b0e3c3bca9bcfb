"""The log's tree in the database: leaves are kept with their events, and above them every fourth level is stored.

In: addresses of complete subtrees (`protocol/merkle/history.py`). Out: their hashes. One that lies between two stored
levels is hashed from at most eight below it, so that sixteen leaves cost one row of the tree and not sixteen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from coordinator.db.log import Event, LogNode
from protocol.errors import ProofpoolError
from protocol.merkle.history import NodeAddress, node_hash

STRATUM = 4
"""Of this many levels one is stored."""


class _Span(NamedTuple):
    """Neighbours on a stored level, `first` to `last`: what a subtree is hashed from."""

    level: int
    first: int
    last: int


class LogNodes:
    """Complete subtrees, as `protocol/merkle/history.py` reads them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, addresses: Sequence[NodeAddress]) -> list[str]:
        """Hashes in the order of `addresses`. Raises ProofpoolError where a row is missing."""
        spans = [_span_below(address) for address in addresses]
        stored = self._leaves(spans) | self._nodes(spans)
        return [_folded(stored, span) for span in spans]

    def _leaves(self, spans: Iterable[_Span]) -> dict[NodeAddress, str]:
        ranges = [Event.index.between(span.first, span.last) for span in spans if not span.level]
        if not ranges:
            return {}
        rows = self._session.execute(select(Event.index, Event.leaf_hash).where(or_(*ranges)))
        return {NodeAddress(0, index): leaf_hash for index, leaf_hash in rows}

    def _nodes(self, spans: Iterable[_Span]) -> dict[NodeAddress, str]:
        # Each by its own look into the index: of a list of pairs SQLite makes a walk over the whole table.
        ranges = [
            and_(LogNode.level == span.level, LogNode.position.between(span.first, span.last))
            for span in spans
            if span.level
        ]
        if not ranges:
            return {}
        rows = self._session.execute(select(LogNode.level, LogNode.position, LogNode.node_hash).where(or_(*ranges)))
        return {NodeAddress(level, position): found for level, position, found in rows}


def _span_below(address: NodeAddress) -> _Span:
    height = address.level % STRATUM
    return _Span(address.level - height, address.position << height, ((address.position + 1) << height) - 1)


def _folded(stored: dict[NodeAddress, str], span: _Span) -> str:
    """The root over a span, whose length is a power of two."""
    addresses = [NodeAddress(span.level, position) for position in range(span.first, span.last + 1)]
    if missing := [address for address in addresses if address not in stored]:
        raise ProofpoolError("the log's tree has a hole", str(missing[0]), "restore the database from a backup")
    hashes = [stored[address] for address in addresses]
    while len(hashes) > 1:
        hashes = [node_hash(*pair) for pair in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0]
