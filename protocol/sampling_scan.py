"""One scan over rows of logits: who wins the noised race, and the sums that every statistic of a row is made of.

    float32 logits ──compiled kernel──▶ settled rows ──▶ RowScan
    other dtypes, unsettled rows, no numba ──numpy──▶ RowScan

The kernel settles a row only where rounding can't decide it, so both ways choose the same tokens, always. In: logits
[N, V], keys [N]. Out: `RowScan`, which `protocol/sampling_rows.py` turns into draws and statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from protocol.kernels import are_enabled
from protocol.rules import SamplingRules
from protocol.sampling import Float64Array, Keys, Logits, Tokens, noised_logits, row_blocks, scaled_logits

NO_TOKEN = -1

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class RowScan:
    """Arrays [N]. Weights are exp(logit / temperature − the row's largest), before top_k and top_p.

    `drawn` and `runner_up`: ids of the best and the second best noised logit (NO_TOKEN: nothing else is kept);
    `is_claimed_kept`: whether top_k and top_p leave the claimed token; `is_finite`: False for NaN, +inf or nothing
    but −inf, and the other arrays say nothing then; `top`: the largest logit / temperature; `weight`: the sum;
    `weighted_logit`: Σ weight · (its logarithm);
    `tiny_weight`: of tokens with less than `tiny` of the probability; `eos_weight`: of the EOS tokens.
    """

    drawn: Tokens
    runner_up: Tokens
    is_claimed_kept: npt.NDArray[np.bool_]
    is_finite: npt.NDArray[np.bool_]
    top: Float64Array
    weight: Float64Array
    weighted_logit: Float64Array
    tiny_weight: Float64Array
    eos_weight: Float64Array

    def put(self, rows: slice | npt.NDArray[np.int64], other: RowScan) -> None:
        """Take some rows from another scan."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(other, field.name)


def scan_rows(
    logits: Logits,
    keys: Keys,
    sampling: SamplingRules,
    claimed: Tokens | None = None,
    eos_ids: Sequence[int] = (),
    tiny: float = 0.0,
) -> RowScan:
    """`claimed` and `eos_ids` are ids of the vocabulary; without `claimed`, no token is."""
    claimed = np.full(len(logits), NO_TOKEN) if claimed is None else claimed
    if logits.dtype != np.float32 or not logits.size or not are_enabled():
        return plain_scan(logits, keys, sampling, claimed, eos_ids, tiny)
    scan, unsettled = _compiled_scan(logits, keys, sampling, claimed, eos_ids, tiny)
    if len(unsettled):
        again = plain_scan(logits[unsettled], keys[unsettled], sampling, claimed[unsettled], eos_ids, tiny)
        scan.put(unsettled, again)
    return scan


def plain_scan(
    logits: Logits, keys: Keys, sampling: SamplingRules, claimed: Tokens, eos_ids: Sequence[int], tiny: float
) -> RowScan:
    """The scan by numpy alone, a block of rows at a time."""
    found = _empty(len(logits))
    for rows in row_blocks(*logits.shape):
        with np.errstate(invalid="ignore"):
            found.put(rows, _plain_block(logits[rows], keys[rows], sampling, claimed[rows], eos_ids, tiny))
    return found


def _plain_block(
    logits: Logits, keys: Keys, sampling: SamplingRules, claimed: Tokens, eos_ids: Sequence[int], tiny: float
) -> RowScan:
    scaled, each = scaled_logits(logits, sampling), np.arange(len(logits))
    top = scaled.max(axis=1)
    exponents = scaled - top[:, None]
    weights = np.exp(exponents)
    weight = weights.sum(axis=1)
    noised = noised_logits(scaled, keys, sampling)
    drawn, is_kept = noised.argmax(axis=1), noised[each, claimed] > -np.inf
    noised[each, drawn] = -np.inf
    runner_up = noised.argmax(axis=1)
    return RowScan(
        drawn=drawn,
        runner_up=np.where(noised[each, runner_up] > -np.inf, runner_up, NO_TOKEN),
        is_claimed_kept=is_kept & (claimed != NO_TOKEN),
        is_finite=np.isfinite(weight),
        top=top,
        weight=weight,
        weighted_logit=np.where(weights > 0, weights * exponents, 0).sum(axis=1),
        tiny_weight=np.where(weights < tiny * weight[:, None], weights, 0).sum(axis=1),
        eos_weight=weights[:, list(eos_ids)].sum(axis=1),
    )


def _compiled_scan(
    logits: Logits, keys: Keys, sampling: SamplingRules, claimed: Tokens, eos_ids: Sequence[int], tiny: float
) -> tuple[RowScan, Tokens]:
    """The scan, and the numbers of rows that the plain one has to settle."""
    from protocol import sampling_kernels as kernels

    num_rows = len(logits)
    ids = np.zeros((num_rows, len(kernels.IDS)), dtype=np.int64)
    sums = np.zeros((num_rows, len(kernels.SUMS)))
    status = np.empty(num_rows, dtype=np.int64)
    rule = (float(sampling.temperature), int(sampling.top_k), float(sampling.top_p))
    kernels.scan(
        _array(logits, np.float32), _array(keys, np.uint64), _array(claimed, np.int64),
        rule, _array(eos_ids, np.int64), float(tiny), ids, sums, status,
    )  # fmt: skip
    scan = RowScan(
        drawn=ids[:, kernels.DRAWN],
        runner_up=ids[:, kernels.RUNNER_UP],
        is_claimed_kept=ids[:, kernels.CLAIMED_KEPT] > 0,
        is_finite=status != kernels.NOT_FINITE,
        top=sums[:, kernels.TOP],
        weight=sums[:, kernels.WEIGHT],
        weighted_logit=sums[:, kernels.WEIGHTED_LOGIT],
        tiny_weight=sums[:, kernels.TINY_WEIGHT],
        eos_weight=sums[:, kernels.EOS_WEIGHT],
    )
    return scan, np.flatnonzero(status == kernels.UNSETTLED)


def _array(values: npt.ArrayLike, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """In C order and writable: one compiled version serves all callers. No copy where it is so already."""
    return np.require(np.asarray(values, dtype=dtype), requirements=["C", "W"])


def _empty(num_rows: int) -> RowScan:
    tokens, flags = np.zeros((2, num_rows), dtype=np.int64), np.zeros((2, num_rows), dtype=np.bool_)
    return RowScan(*tokens, *flags, *np.zeros((5, num_rows)))
