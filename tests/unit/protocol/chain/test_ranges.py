"""Ranges of blocks: halved by any refusal, grown by success, nothing read twice or left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.chain.ranges import BlockRanges
from protocol.errors import ChainError, NodeRefused


class Node:
    """Answers for at most `limit` blocks, and for no more than `dense` of them where the logs are many."""

    def __init__(self, limit: int, dense: range = range(0), dense_limit: int = 1) -> None:
        self.limit, self.dense, self.dense_limit = limit, dense, dense_limit
        self.asked: list[int] = []

    def read(self, start: int, end: int) -> list[int]:
        self.asked.append(end - start + 1)
        touches_dense = start < self.dense.stop and end >= self.dense.start
        if end - start + 1 > (self.dense_limit if touches_dense else self.limit):
            raise NodeRefused("eth_getLogs", -32005, "query returned more than 10000 results")
        return list(range(start, end + 1))


@given(st.integers(0, 50), st.integers(0, 300), st.integers(1, 64), st.integers(1, 64))
def test_every_block_is_read_once_and_in_order(first: int, num_blocks: int, most: int, limit: int) -> None:
    ranges, node = BlockRanges("logs", most), Node(limit)
    last = first + num_blocks - 1
    assert list(ranges.read(first, last, node.read)) == list(range(first, last + 1))
    assert max(node.asked, default=0) <= most


def test_a_range_grows_again_past_the_place_that_was_too_dense() -> None:
    ranges, node = BlockRanges("logs", 64), Node(64, dense=range(100, 110), dense_limit=2)
    assert list(ranges.read(0, 999, node.read)) == list(range(1000))
    assert min(node.asked) <= 2
    assert node.asked[-2] == 64


def test_a_node_that_refuses_a_single_block_is_an_error() -> None:
    with pytest.raises(NodeRefused, match="refused"):
        list(BlockRanges("logs", 64).read(0, 10, Node(0).read))


def test_a_node_that_doesnt_answer_is_asked_for_less_the_next_time() -> None:
    ranges = BlockRanges("logs", 64)

    def read(start: int, end: int) -> list[int]:
        raise ChainError("the node doesn't answer in time")

    with pytest.raises(ChainError, match="in time"):
        list(ranges.read(0, 499, read))
    assert ranges.num_blocks == 32
    for _ in range(10):
        with pytest.raises(ChainError):
            list(ranges.read(0, 499, read))
    assert ranges.num_blocks == 1
