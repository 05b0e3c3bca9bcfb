"""The cuts of top_k and top_p: rounding moves tokens across them, and a worker can't choose beyond."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from protocol.checks.prefill import measure
from protocol.checks.slices import Slice
from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from protocol.sampling import Float64Array, draw_tokens, kept_tokens, margins, scaled_logits
from protocol.sampling_edges import edge_margins, surely_and_perhaps_kept
from tests.unit.verifier.verifier_world import World

CUTS = [SamplingRules(top_p=0.95), SamplingRules(top_k=20), SamplingRules(top_k=30, top_p=0.9, temperature=0.7)]
NATS, CLIP = 0.02, 10.0


def logits_of(seed: int, num_rows: int = 4000) -> Float64Array:
    return np.random.default_rng(seed).normal(scale=3, size=(num_rows, 60))


def keys_of(num_rows: int) -> np.typing.NDArray[np.uint64]:
    return np.random.default_rng(9).integers(0, 2**63, num_rows).astype(np.uint64)


@pytest.mark.parametrize("sampling", CUTS)
def test_a_token_that_rounding_moved_across_the_cut_is_as_near_as_rounding(sampling: SamplingRules) -> None:
    logits, keys = logits_of(1), keys_of(4000)
    off = np.random.default_rng(2).uniform(-NATS, NATS, logits.shape) * sampling.temperature
    tokens, _ = draw_tokens(logits + off, keys, sampling)
    plain = margins(logits, tokens, keys, sampling, CLIP)
    assert (plain > 0.5).any()  # the cut alone would have had honest tokens refused
    assert edge_margins(logits, tokens, keys, sampling, nats=NATS, clip=CLIP).max() <= 2 * NATS


@pytest.mark.parametrize("sampling", CUTS)
def test_a_token_that_another_row_drew_is_as_far_as_ever(sampling: SamplingRules) -> None:
    logits, keys = logits_of(1), keys_of(4000)
    tokens, _ = draw_tokens(logits, keys[::-1].copy(), sampling)
    plain = margins(logits, tokens, keys, sampling, CLIP)
    found = edge_margins(logits, tokens, keys, sampling, nats=NATS, clip=CLIP)
    assert (found <= plain).all() and (found < plain).mean() < 0.1


@pytest.mark.parametrize("sampling", CUTS)
def test_what_is_kept_lies_between_what_surely_and_what_perhaps_is(sampling: SamplingRules) -> None:
    scaled = scaled_logits(logits_of(3, 200), sampling)
    kept = kept_tokens(scaled, sampling)
    for nats in (0.0, NATS):
        for row, is_kept in zip(scaled, kept, strict=True):
            sure, perhaps = surely_and_perhaps_kept(row, sampling, nats)
            assert not (sure & ~is_kept).any() and not (is_kept & ~perhaps).any()
    sure, perhaps = surely_and_perhaps_kept(scaled[0], sampling, 0.0)
    assert (sure == kept[0]).all() and (perhaps == kept[0]).all()


class SameAnswer:
    """A model with these logits everywhere."""

    def __init__(self, model: CausalLM, logits: Float64Array) -> None:
        self.model, self.row, self.config = model, torch.from_numpy(logits.astype(np.float32)), model.config

    def __call__(self, *args: Any) -> torch.Tensor:
        hidden: torch.Tensor = self.model(*args)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.row.expand(len(hidden), -1)


def test_a_verifier_takes_the_cut_for_what_it_is(world: World, honest: list[Rollout]) -> None:
    """Token 7 has nine tenths before it: a worker's sums let it in, the verifier's don't. Token 5 is out for both."""
    row = np.full(world.model.config.vocab_size, np.log(0.01 / (world.model.config.vocab_size - 2)))
    row[[3, 7]] = np.log([0.9, 0.09])
    sampling = world.rules.sampling.model_copy(update={"top_p": 0.9 - 1e-6})
    everything = Slice(tuple(range(len(honest))), tuple(honest))
    keys, logits = everything.keys(world.seed()), np.tile(row, (sum(everything.lengths), 1))
    tokens, _ = draw_tokens(logits, keys, sampling)
    by_worker, _ = draw_tokens(logits, keys, sampling.model_copy(update={"top_p": 0.9 + 1e-6}))
    tokens[:60] = by_worker[:60]
    is_flip = tokens != 3
    assert set(tokens[is_flip]) == {7}
    tokens[100] = 5
    ends = np.cumsum(everything.lengths)[:-1]
    rows = [
        replace(r, output_tokens=part.astype(np.int32)) for r, part in zip(honest, np.split(tokens, ends), strict=True)
    ]
    case = world.case(rows, rules=world.rules.model_copy(update={"sampling": sampling}))
    found = measure(case, cast(CausalLM, SameAnswer(world.model, row))).margins
    assert (found[is_flip] == world.rules.thresholds.near_tie_nats).all()
    assert found[100] == world.rules.thresholds.margin_reach and (found > 0).sum() == is_flip.sum() + 1
