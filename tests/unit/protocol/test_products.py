"""Products by the quicker library are torch's own, whatever their shape and type."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from protocol import products
from protocol.products import LEAST_ROWS, SUMMED_ROWS, WRITTEN_ROWS, add_outer, product, summed_outer


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(found: Tensor, wanted: Tensor, tolerance: float = 1e-6) -> None:
    """To rounding errors of sums of as large terms."""
    assert found.shape == wanted.shape
    assert float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max()) < tolerance


@pytest.mark.parametrize("num_rows", [1, LEAST_ROWS - 1, LEAST_ROWS, 300])
def test_product_of_any_number_of_rows(num_rows: int) -> None:
    x, weight, bias = normal(num_rows, 48), normal(33, 48, seed=1), normal(33, seed=2)
    exact = x.double() @ weight.double().T
    assert_near(product(x, weight), exact)
    assert_near(product(x, weight, bias), exact + bias)
    assert_near(product(normal(num_rows, 33), weight.T), normal(num_rows, 33).double() @ weight.double())


@pytest.mark.parametrize("num_rows", [7, LEAST_ROWS, SUMMED_ROWS, 2 * SUMMED_ROWS + 5])
@pytest.mark.parametrize(("wide", "narrow"), [(48, 16), (16, 48), (20, 20)])
def test_summed_outer_whichever_side_is_wider(num_rows: int, wide: int, narrow: int) -> None:
    left, right = normal(num_rows, wide), normal(num_rows, narrow, seed=1)
    found = summed_outer(left, right)
    assert_near(found, left.double().T @ right.double())
    assert found.is_contiguous()


@pytest.mark.parametrize("num_rows", [7, LEAST_ROWS])
def test_add_outer_adds_to_each_row_once(num_rows: int) -> None:
    total, left, right = normal(WRITTEN_ROWS + 3, 4), normal(num_rows, WRITTEN_ROWS + 3), normal(num_rows, 4, seed=1)
    wanted = total.double() + left.double().T @ right.double()
    add_outer(total, left, right)
    assert_near(total, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_torchs_to_the_bit(dtype: torch.dtype) -> None:
    x, weight = normal(LEAST_ROWS, 24, dtype=dtype), normal(8, 24, dtype=dtype, seed=1)
    assert torch.equal(product(x, weight), x @ weight.T)
    assert torch.equal(summed_outer(x, x), x.T @ x)
    total = torch.zeros(24, 24)
    add_outer(total, x, x)
    assert torch.equal(total, (x.T @ x).float())


def test_without_onednn_products_are_torchs_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "has_onednn", lambda dtype: False)
    x, weight = normal(LEAST_ROWS, 24), normal(8, 24, seed=1)
    assert torch.equal(product(x, weight), x @ weight.T)
    assert torch.equal(summed_outer(x, x), x.T @ x)


def test_the_same_rows_give_the_same_bits() -> None:
    x, weight = normal(300, 48), normal(33, 48, seed=1)
    assert torch.equal(product(x, weight), product(x, weight))
    assert torch.equal(summed_outer(x, x), summed_outer(x, x))
    assert not torch.equal(product(x, weight), product(x + 1e-3, weight))
