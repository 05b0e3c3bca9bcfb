"""Packing: every real row is in one group once, and comes back to its place."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProofpoolError
from protocol.packing import Packing


@given(st.lists(st.integers(1, 70), min_size=1, max_size=12))
def test_restore_undoes_the_grouping(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    grouped = torch.cat([group.queries.flatten() for group in packing.groups])
    assert torch.equal(grouped[packing.restore], torch.arange(sum(lengths)))


@given(st.lists(st.integers(1, 70), min_size=1, max_size=12))
def test_positions_restart_with_each_sequence(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    assert packing.positions.tolist() == [i for length in lengths for i in range(length)]
    assert packing.positions[packing.last_rows].tolist() == [length - 1 for length in lengths]


@given(st.integers(1, 40), st.lists(st.integers(1, 70), min_size=1, max_size=6))
def test_a_continuation_goes_on_from_its_prompt(prompt: int, completions: list[int]) -> None:
    packing = Packing.of([*completions, prompt], [len(completions)] * len(completions) + [-1])
    wanted = [prompt + i for length in completions for i in range(length)]
    assert packing.positions.tolist() == wanted + list(range(prompt))
    grouped = torch.cat([group.queries.flatten() for group in packing.groups])
    assert torch.equal(grouped[packing.restore], torch.arange(sum(completions) + prompt))
    whole = packing.whole(packing.positions)
    assert [sequence.tolist() for sequence in whole] == [list(range(prompt + n)) for n in (*completions, 0)]


@pytest.mark.parametrize("continues", [[0, -1, 0], [2, 0, -1], [-1, 3, -1], [-2, -1, -1], [-1, 0]])
def test_only_a_prompt_can_be_continued(continues: list[int]) -> None:
    assert Packing.of([3, 4, 5], [-1, 2, -1]).num_tokens == 12
    with pytest.raises(ProofpoolError, match="continues what it can't"):
        Packing.of([3, 4, 5], continues)
