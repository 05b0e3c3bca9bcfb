"""Seeds and the stream of integers that follows from them: vectors, and no bias."""

from __future__ import annotations

import hashlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from protocol.randomness import SeedStream, task_seed

NODE = "0x" + "0b" * 20
BEACON = "0x" + "0d" * 32


def test_vectors_do_not_move() -> None:
    seed = task_seed(1, 2, NODE, 3, BEACON)
    assert seed.hex() == "328002d6f7bd8763c9b189ae1c61c71c421cde577fa4546357ad3340ee9a4e51"
    stream = SeedStream(seed, "group/0")
    assert [stream.word() for _ in range(5)] == [
        6768130228379684643,
        3669846455807371604,
        15187720951646245514,
        14119351080637677179,
        14857824759656357636,
    ]


def test_a_word_is_read_off_the_hash_by_hand() -> None:
    digest = hashlib.sha256(bytes(32) + b"\0\0\0\1" + b"x" + bytes(8)).digest()
    assert SeedStream(bytes(32), "x").word() == int.from_bytes(digest[:8], "big")


def test_every_part_of_a_task_changes_its_seed() -> None:
    base = (1, 2, NODE, 3, BEACON)
    others = [(9, *base[1:]), (1, 9, *base[2:]), (1, 2, "0x" + "0c" * 20, 3, BEACON), (1, 2, NODE, 9, BEACON)]
    seeds = {task_seed(*args) for args in [base, *others, (1, 2, NODE, 3, "0x" + "0e" * 32)]}
    assert len(seeds) == 6


@given(st.binary(min_size=32, max_size=32), st.integers(1, 2**63))
def test_integers_stay_below_their_bound(seed: bytes, bound: int) -> None:
    assert 0 <= SeedStream(seed, "x").below(bound) < bound


def test_labels_are_separate_and_counts_are_even() -> None:
    assert SeedStream(bytes(32), "a").word() != SeedStream(bytes(32), "b").word()
    stream = SeedStream(bytes(32), "even")
    counts = Counter(stream.below(7) for _ in range(7000))
    assert len(counts) == 7
    assert all(abs(count - 1000) < 150 for count in counts.values())
