"""Packing: every real row is in one group once, and comes back to its place."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from protocol.packing import Packing


@given(st.lists(st.integers(1, 70), min_size=1, max_size=12))
def test_restore_undoes_the_grouping(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    grouped = torch.cat([rows.flatten() for rows in packing.groups])
    assert torch.equal(grouped[packing.restore], torch.arange(sum(lengths)))


@given(st.lists(st.integers(1, 70), min_size=1, max_size=12))
def test_positions_restart_with_each_sequence(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    assert packing.positions.tolist() == [i for length in lengths for i in range(length)]
    assert packing.positions[packing.last_rows].tolist() == [length - 1 for length in lengths]
