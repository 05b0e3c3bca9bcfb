"""Ranges of blocks that a node answers for: as long as it lets them be, shorter where it refuses.

In: first and last block, and how to read a range. Out: what was read, in order. Nodes bound the blocks, the results or
the time of one request, each in words of its own; so any refusal halves the range, and each success lets it grow again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from protocol.errors import ChainError, NodeRefused
from protocol.telemetry import get_logger

GROWTH = 4
"""A success makes the next range longer by this part: doubling would run into the limit at every other request."""

T = TypeVar("T")


class BlockRanges:
    """How many blocks one kind of request asks for.

    Example: `BlockRanges("logs", 1000).read(5, 2504, read_logs)`.
    """

    def __init__(self, what: str, most_blocks: int) -> None:
        self.num_blocks = most_blocks
        self._what = what
        self._most_blocks = most_blocks

    def read(self, first: int, last: int, read: Callable[[int, int], Iterable[T]]) -> Iterator[T]:
        """What `read(start, end)` gives for [first, last]. Raises what it raises, a refusal only for a single block."""
        start = first
        while start <= last:
            end = min(last, start + self.num_blocks - 1)
            try:
                found = list(read(start, end))
            except NodeRefused as error:
                if start == end:
                    raise
                self._shorten(end - start + 1, error)
                continue
            except ChainError as error:  # a range may also be what the node doesn't finish in time
                self._shorten(end - start + 1, error)
                raise
            yield from found
            self.num_blocks = min(self.num_blocks + max(1, self.num_blocks // GROWTH), self._most_blocks)
            start = end + 1

    def _shorten(self, num_asked: int, error: ChainError) -> None:
        self.num_blocks = max(1, num_asked // 2)
        get_logger().info("chain.range_halved", what=self._what, num_blocks=self.num_blocks, why=str(error)[:200])
