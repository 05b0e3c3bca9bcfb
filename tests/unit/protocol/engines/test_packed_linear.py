"""Packed weights: the products of plain ones, with and without what makes them quick."""

from __future__ import annotations

import pytest
import torch

from protocol.engines import packed_linear
from protocol.engines.packed_linear import PackedLinear


@pytest.mark.parametrize("size", [(30, 20), (300, 200)], ids=["small", "large"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_there", [True, False], ids=["as it is", "without oneDNN"])
@torch.inference_mode()
def test_products_are_those_of_the_plain_weight(
    size: tuple[int, int], has_bias: bool, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_there:
        monkeypatch.setattr(packed_linear, "has_onednn", lambda dtype: False)
    weight, bias = torch.randn(size), torch.randn(size[0]) if has_bias else None
    packed = PackedLinear(weight, bias)
    for num_rows in (1, 3, 32, 70):
        x, residual = torch.randn(num_rows, size[1]), torch.randn(num_rows, size[0])
        expected = torch.nn.functional.linear(x, weight, bias)
        torch.testing.assert_close(packed(x), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(packed.plus(x, residual), expected + residual, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(30, 20), (300, 200), (1, 20_000), (20_000, 1), (65, 257)])
def test_each_value_lies_where_the_place_says(size: tuple[int, int], dtype: torch.dtype) -> None:
    weight = torch.randn(size).to(dtype)
    place = PackedLinear(weight).place()
    assert torch.equal(place.memory[place.offsets(torch.arange(weight.numel()))], weight.flatten())
