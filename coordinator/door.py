"""Who was refused at the door, and why: at most one leaf an epoch, of bounded length.

    refusal ─▶ `Refusals`, in memory ─▶ `door.refused`, before the epoch's own leaf

In: refused leases and submissions. Out: counts by node and reason, so that a coordinator that leases to some and not to
others says so, or keeps silent against what the others have noted. A row costs stake: nodes without the pool's least
allotment are summed up in `others`, and so is what is over `MAX_ROWS`, of which each provider has one before any has a
second, in an order that changes with the epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TypeVar

from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import Allotment, Node, Pool
from coordinator.log import append
from coordinator.pool import chain_time
from coordinator.refusals import NOBODY, Door, Key
from protocol.canonical import JsonValue, sha256
from protocol.errors import Rejected
from protocol.wire import ZERO_HASH

T = TypeVar("T")

REFUSED = "door.refused"
MAX_ROWS = 64


@contextmanager
def counting_refusals(coordinator: Coordinator, door: Door, node: str) -> Iterator[None]:
    """Count a refusal that ends the block. `node` has signed the request."""
    try:
        yield
    except Rejected as refusal:
        with coordinator.reading() as session:
            has_row = _has_stake(session, coordinator.config.pool_id, node)
        coordinator.refusals.note(Key(door, node if has_row else NOBODY, refusal.reason.value))
        raise


def log_refusals(session: Session, epoch: int, counts: Mapping[Key, int]) -> None:
    """The leaf of an epoch that is about to close; none where nobody was refused."""
    if not counts:
        return
    rows = sorted(in_turn(_by_provider(session, epoch, counts))[:MAX_ROWS])
    others = Counter[Key]()
    for key in counts.keys() - set(rows):
        others[key._replace(node=NOBODY)] += counts[key]
    data: dict[str, JsonValue] = {"epoch": epoch}
    for door in Door:
        data[door.value] = [[key.node, key.reason, counts[key]] for key in rows if key.door is door]
    data["others"] = {
        door.value: {key.reason: number for key, number in sorted(others.items()) if key.door is door} for door in Door
    }
    append(session, REFUSED, ZERO_HASH, chain_time(session), data)


def _has_stake(session: Session, pool_id: int, node: str) -> bool:
    """Whether the pool's least allotment stands behind it, held by cases or not."""
    pool, allotment = session.get(Pool, pool_id), session.get(Allotment, (node, pool_id))
    return pool is not None and allotment is not None and allotment.amount_wei >= pool.min_allotment_wei


def _by_provider(session: Session, epoch: int, counts: Mapping[Key, int]) -> list[list[Key]]:
    """Each provider's rows, those that count most first. In another epoch other providers come first."""
    rows: dict[str, list[Key]] = {}
    for key in sorted(counts, key=lambda key: (-counts[key], key)):
        node = session.get(Node, key.node)
        if node is not None:  # nobody's, or a reorg has taken it away
            rows.setdefault(node.provider, []).append(key)
    return [rows[provider] for provider in sorted(rows, key=lambda provider: sha256(f"{epoch} {provider}".encode()))]


def in_turn(rows: Sequence[Sequence[T]]) -> list[T]:
    """The first of each, then the second of each, and so on.

    >>> in_turn([[1, 2, 3], [4]])
    [1, 4, 2, 3]
    """
    return [one for turn in zip_longest(*rows) for one in turn if one is not None]
