"""The paged cache: no block twice, none lost, and what is full says so."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protocol.engines.paged_cache import PagedCache, num_blocks
from protocol.errors import ProofpoolError
from protocol.weights import ModelConfig

CONFIG = ModelConfig(
    model_type="llama", vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=1, head_dim=4, max_position_embeddings=64,
)  # fmt: skip


@pytest.mark.parametrize(("num_tokens", "expected"), [(0, 0), (1, 1), (16, 1), (17, 2), (160, 10)])
def test_blocks_that_tokens_fill(num_tokens: int, expected: int) -> None:
    assert num_blocks(num_tokens) == expected


@given(st.lists(st.integers(0, 6), max_size=30), st.randoms(use_true_random=False))
def test_whatever_is_taken_and_given_back_no_block_is_held_twice_or_lost(counts: list[int], luck: object) -> None:
    cache, held = PagedCache(CONFIG, 16 * 20, torch.float32), []
    for count in counts:
        if count > cache.num_free:
            with pytest.raises(ProofpoolError, match="full"):
                cache.take(count)
            cache.give(held.pop(luck.randrange(len(held))))  # type: ignore[attr-defined]
        else:
            held.append(cache.take(count))
        blocks = [block for row in held for block in row]
        assert len(set(blocks)) == len(blocks)
        assert cache.num_free + len(blocks) == cache.num_blocks == 20


def test_a_copy_holds_what_its_source_does() -> None:
    cache = PagedCache(CONFIG, 64, torch.float32)
    cache.keys[:, 1], cache.values[:, 1] = 1.5, 2.5
    cache.copy(1, [3, 0])
    for block, expected in ((0, 1.5), (2, 0.0), (3, 1.5)):
        assert bool((cache.keys[:, block] == expected).all())
    assert bool((cache.values[:, 3] == 2.5).all())


def test_places_follow_each_rows_blocks() -> None:
    blocks, insides = PagedCache(CONFIG, 64, torch.float32).places([[3, 1], [2]], [18, 2])
    assert blocks.tolist() == [3] * 16 + [1, 1] + [2, 2]
    assert insides.tolist() == [*range(16), 0, 1, 0, 1]


def test_memory_is_used_from_when_a_block_is_first_written() -> None:
    before = resident_bytes()
    cache = PagedCache(CONFIG, 1 << 22, torch.float32)
    assert cache.keys.nbytes == cache.values.nbytes == 1 << 27
    assert resident_bytes() - before < 1 << 26
    cache.keys[:] = 1
    assert resident_bytes() - before > 1 << 26


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
