"""Compiled kernels against plain numpy: the same bytes and the same statistics for every input.

pytest tests/unit/protocol/toploc/test_toploc_paths.py             300 random cases
pytest tests/unit/protocol/toploc/test_toploc_paths.py -m slow     10,000
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from protocol import kernels
from protocol.toploc import fast, kernel_field, kernel_topk, plain
from protocol.toploc.build import build_proofs, build_proofs_bytes, build_rollouts
from protocol.toploc.paths import Chosen, Claims, Piece, choose
from protocol.toploc.strict import verify_rollouts
from protocol.toploc.topk import BF16_INFINITY, F16_INFINITY, Bits, Ties
from protocol.toploc.verify import verify_proofs_bytes

PRIME = 65497
TIES: tuple[Ties, ...] = ("lowest", "torch-cpu")


def rounded(values: npt.NDArray[Any]) -> Bits:
    """bf16 patterns, truncated."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return rounded(rng.standard_normal(shape))


def with_outliers(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return rounded(rng.standard_normal(shape) * np.where(np.arange(shape[1]) % 50 == 7, 30, 1))


def few_values(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return (rng.integers(0, rng.integers(1, 40), shape) + 0x3F80).astype(np.uint16)


def mostly_zeros(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return np.where(rng.random(shape) < 0.01, normal(rng, shape), rng.choice([0, 0x8000], shape)).astype(np.uint16)


def subnormal(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return (rng.integers(0, 0x80, shape) | rng.choice([0, 0x8000], shape)).astype(np.uint16)


def any_pattern(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return rng.integers(0, 2**16, shape).astype(np.uint16)


def growing(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return np.sort(normal(rng, shape).reshape(-1) & 0x7FFF).reshape(shape)


def shrinking(rng: np.random.Generator, shape: tuple[int, int]) -> Bits:
    return np.ascontiguousarray(growing(rng, shape)[::-1, ::-1])


KINDS: tuple[Callable[[np.random.Generator, tuple[int, int]], Bits], ...] = (
    normal,
    with_outliers,
    few_values,
    mostly_zeros,
    subnormal,
    any_pattern,
    growing,
    shrinking,
)


@dataclass(frozen=True)
class Case:
    rows: Bits
    chunk_rows: int
    topk: int
    ties: Ties

    @classmethod
    def random(cls, seed: int) -> Case:
        """Chunks of few values to many, k of 1 to 256, on both sides of the 64 k where torch's rule changes."""
        rng = np.random.default_rng(seed)
        topk = int(rng.choice([1, 2, 3, 16, 100, 127, 128, 129, 256]))
        width = int(topk + rng.integers(0, rng.choice([2, 300, 3000])))
        num_rows = int(rng.integers(1, max(2, min(70, 200_000 // width))))
        rows = KINDS[rng.integers(len(KINDS))](rng, (num_rows, width))
        return cls(rows, int(rng.integers(1, num_rows + 2)), topk, TIES[rng.integers(2)])


def everything(case: Case) -> tuple[object, ...]:
    """All that the calls say of a case, by the path in force."""
    published = build_proofs_bytes(case.rows, case.chunk_rows, case.topk, True, ties=case.ties)
    as_list = build_proofs_bytes(list(case.rows), case.chunk_rows, case.topk, ties=case.ties)
    changed = case.rows ^ (np.arange(case.rows.size) % 97 == 0).reshape(case.rows.shape).astype(np.uint16)
    measured = verify_proofs_bytes(changed, published, case.chunk_rows, case.topk, True, ties=case.ties)
    return published, as_list, measured, strictly(case, changed)


def strictly(case: Case, changed: Bits) -> object:
    if ((case.rows & 0x7FFF) >= BF16_INFINITY).any():
        return None  # an error, by either path; see test_toploc_build.py
    rollouts, options = [case.rows, case.rows[:1]], {"chunk_rows": case.chunk_rows, "topk": case.topk}
    proofs = build_rollouts(rollouts, ties=case.ties, **options)
    return proofs, verify_rollouts([changed, case.rows[:1]], proofs, ties=case.ties, **options)


def check_cases(seeds: range) -> None:
    for seed in seeds:
        case, said = Case.random(seed), []
        for path in ("kernels", "plain"):
            with mock.patch.dict(os.environ, {kernels.VARIABLE: path}):
                said.append(everything(case))
        assert said[0] == said[1], f"case {seed}"


def test_random_cases_have_the_same_bytes_and_statistics() -> None:
    check_cases(range(300))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(300, 10_000, 970))
def test_10000_random_cases_have_the_same_bytes_and_statistics(first: int) -> None:
    check_cases(range(first, first + 970))


def sets(chosen: Chosen) -> list[list[tuple[int, int]]]:
    return [sorted(zip(*row, strict=True)) for row in zip(chosen.indices.tolist(), chosen.values.tolist(), strict=True)]


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(np.uint16, st.integers(1, 700), elements=st.integers(0, 2**16 - 1), fill=st.sampled_from([0, 0x3F80])),
    st.integers(1, 300),
    st.sampled_from(TIES),
    st.sampled_from([BF16_INFINITY, F16_INFINITY]),
)
def test_both_paths_choose_the_same_set(flat: Bits, topk: int, ties: Ties, infinity: int) -> None:
    topk = min(topk, len(flat))
    pieces = [Piece(flat, len(flat))]
    assert sets(fast.choose(pieces, topk, ties, infinity)) == sets(plain.choose(pieces, topk, ties, infinity))


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 400_000), min_size=1, max_size=200), st.integers(0, 2**32))
def test_both_paths_fit_the_same_polynomial(indices: set[int], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 2**16, (1, len(indices))).astype(np.uint16)
    chosen = Chosen(np.array([sorted(indices)], dtype=np.int64), values)
    by_kernels, by_numpy = fast.fit(chosen), plain.fit(chosen)
    assert by_kernels.moduli.tolist() == by_numpy.moduli.tolist()
    assert by_kernels.coefficients.tolist() == by_numpy.coefficients.tolist()


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.uint16, st.tuples(st.just(3), st.integers(1, 40)), elements=st.integers(0, PRIME - 1)),
    st.lists(st.integers(1, 2**40), min_size=3, max_size=3),
    hnp.arrays(np.int64, (3, 20), elements=st.integers(0, 2**40)),
    hnp.arrays(np.uint16, (3, 20)),
    st.sampled_from([0x7F80, 0xFF80]),
)
def test_both_paths_compare_alike(coefficients: Bits, moduli: list[int], indices: Any, values: Bits, mask: int) -> None:
    claims, own = Claims(np.array(moduli), coefficients), Chosen(indices, values)
    by_kernels, by_numpy = fast.compare(claims, own, mask), plain.compare(claims, own, mask)
    assert by_kernels.counts.tolist() == by_numpy.counts.tolist()
    assert by_kernels.errors.tolist() == by_numpy.errors.tolist()


@pytest.mark.parametrize("topk", [400, 500, 600])
def test_values_made_against_introselect_are_chosen_alike(topk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys for which the median of three is always a poor pivot, so that libstdc++ falls back to its heap."""
    keys = Adversary(1000).keys_against(topk - 1)
    called, original = [], kernel_topk._heap_select_entries
    monkeypatch.setattr(kernel_topk, "_heap_select_entries", lambda *a: (called.append(1), original(*a)))
    kernel_topk._nth_element.py_func(keys << 40 | np.arange(1000), topk - 1)
    assert called
    for tied in (1, 2, 3, 10):
        pieces = [Piece((keys // tied).astype(np.uint16), 1000)]
        by_kernels = fast.choose(pieces, topk, "torch-cpu", BF16_INFINITY)
        assert sets(by_kernels) == sets(plain.choose(pieces, topk, "torch-cpu", BF16_INFINITY))


class Adversary:
    """McIlroy's: answers a quickselect's comparisons so that each pivot turns out extreme, and says by which keys."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ranks = [size] * size
        self.num_known = 0
        self.candidate = 0

    def keys_against(self, nth: int) -> npt.NDArray[np.int64]:
        items, first, last = list(range(self.size)), 0, self.size
        while last - first > 3:
            cut = self._partition(items, first, last)
            first, last = (cut, last) if cut <= nth else (first, cut)
        return self.size - np.array(self.ranks)

    def _before(self, a: int, b: int) -> bool:
        if self.ranks[a] == self.ranks[b] == self.size:
            known = a if a == self.candidate else b
            self.ranks[known], self.num_known = self.num_known, self.num_known + 1
        if self.ranks[a] == self.size:
            self.candidate = a
        elif self.ranks[b] == self.size:
            self.candidate = b
        return self.ranks[a] < self.ranks[b]

    def _partition(self, items: list[int], first: int, last: int) -> int:
        a, b, c = first + 1, first + (last - first) // 2, last - 1
        if self._before(items[a], items[b]):
            median = b if self._before(items[b], items[c]) else (c if self._before(items[a], items[c]) else a)
        else:
            median = a if self._before(items[a], items[c]) else (c if self._before(items[b], items[c]) else b)
        items[first], items[median] = items[median], items[first]
        left, right = first + 1, last
        while True:
            while self._before(items[left], items[first]):
                left += 1
            right -= 1
            while self._before(items[first], items[right]):
                right -= 1
            if left >= right:
                return left
            items[left], items[right] = items[right], items[left]
            left += 1


def test_more_values_than_residues_cant_be_told_apart() -> None:
    values = np.zeros(PRIME + 1, dtype=np.uint16)
    for path in (fast, plain):
        with pytest.raises(ValueError, match="no modulus"):
            path.fit(Chosen(np.arange(PRIME + 1)[None], values[None]))


def test_the_path_is_the_one_asked_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    original = kernel_field.fit
    monkeypatch.setattr(kernel_field, "fit", lambda *arguments: (called.append(1), original(*arguments)))
    build_proofs(np.ones((2, 8), dtype=np.uint16), 1, 4)
    assert bool(called) == (path == "kernels")


@pytest.mark.parametrize(("topk", "rule"), [(0, "lowest"), (9, "lowest"), (9, "torch-cpu"), (4, "highest")])
def test_an_impossible_choice_is_refused_by_either_path(topk: int, rule: Any, path: str) -> None:
    with pytest.raises(ValueError):
        choose([Piece(np.ones(17, dtype=np.uint16), 8)], topk, rule, BF16_INFINITY)
