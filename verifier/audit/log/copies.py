"""Are the log's copies of contract events what the chain has? A coordinator could log a slash that never was.

In: a copy, the chain. Out: nothing, or VerificationFailed. Blocks are asked for by number and compared by hash, so that
copies of blocks that a reorg dropped are known as such: the log must say that they are void, and of no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from protocol.chain.block import Block
from protocol.chain.contracts import Contracts, as_text
from protocol.errors import VerificationFailed
from protocol.events import CHAIN, LogEvent
from verifier.audit.step import StillOpen, must_equal, must_hold

Place = tuple[object, object]
"""(block hash, number of the log in its block): what names an event for good."""


class Copies:
    """Example: `Copies(contracts, 1).check(event)`."""

    def __init__(self, contracts: Contracts, pool_id: int) -> None:
        self._contracts = contracts
        self._pool_id = pool_id
        self._events_of = cache(self._read_events)
        self._block = cache(contracts.client.block)

    def block(self, number: int) -> Block | None:
        """None where the chain's node doesn't have it yet."""
        return self._block(number)

    def check(self, copy: LogEvent, *, is_void: bool = False, standing: Sequence[LogEvent] = ()) -> None:
        """Raises VerificationFailed for a copy of nothing, StillOpen where this node isn't as far.

        `is_void`: a later leaf says that the chain has dropped its block; `standing` are the copies that none is about.
        """
        if copy.block is None:
            raise VerificationFailed(f"leaf {copy.index} copies an event of no block", copy.type)
        block = self._block(copy.block)
        is_there = block is not None and block.block_hash == copy.data.get("block_hash")
        if is_void:
            is_again = _place(copy) in map(_place, standing)
            return must_hold("the log voids an event that the chain has", not is_there or is_again, copy.type)
        if block is None:
            raise StillOpen(f"the chain's node has no block {copy.block} yet")
        must_hold(
            f"the chain has another block {copy.block}",
            is_there,
            f"{block.block_hash}, the copy names {copy.data.get('block_hash')!s:.66}",
        )
        return self._check_event(copy, block)

    def _check_event(self, copy: LogEvent, block: Block) -> None:
        place = copy.data.get("log_index")
        found = self._events_of(block.number).get(place) if isinstance(place, int) else None
        if found is None:
            raise VerificationFailed("the chain has no such event", f"{copy.type} in block {block.number}")
        name, arguments = found
        must_equal("the chain has another event there", (copy.type, copy.time), (f"{CHAIN}{name}", block.timestamp))
        must_equal("the chain's event says something else", copy.data.get("arguments"), arguments)
        is_ours = arguments.get("pool_id") in (None, str(self._pool_id))
        must_hold("the event is another pool's", is_ours, f"pool {arguments.get('pool_id')}")
        must_hold("the event is about something else", copy.subject in arguments.values(), copy.subject)

    def _read_events(self, block: int) -> dict[int, tuple[str, dict[str, Any]]]:
        """Names and arguments by number of the log."""
        contracts = self._contracts
        logs = contracts.client.logs(contracts.event_addresses, block, block)
        decoded = ((log.log_index, contracts.decode(log)) for log in logs)
        return {index: (event.name, _texts(event.arguments)) for index, event in decoded if event is not None}


def _texts(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: as_text(value) for name, value in arguments.items()}


def _place(copy: LogEvent) -> Place:
    return copy.data.get("block_hash"), copy.data.get("log_index")
