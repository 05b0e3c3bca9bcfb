"""Packing: every sample once, within the budget, and the same numbers as one forward pass a sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protocol import packing
from protocol.forward import CausalLM
from tests.unit.trainer.conftest import VOCABULARY
from trainer.bins import pack
from trainer.policy import Policy
from trainer.samples import Sample

LENGTHS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=24)
"""(which prompt, number of outputs) a sample."""
PROMPT_LENGTHS = (1, 9, 20, 33)


def sample_of(prompt: int, num_outputs: int, seed: int = 0) -> Sample:
    outputs = torch.randint(0, VOCABULARY, (num_outputs,), generator=torch.Generator().manual_seed(seed))
    tokens = (torch.arange(PROMPT_LENGTHS[prompt]) + prompt) % VOCABULARY
    return Sample(tokens, outputs, torch.zeros(num_outputs), 0.0, 0.0, 0.0, 0)


@given(LENGTHS, st.integers(1, 120))
def test_packing_keeps_every_sample_once_and_its_bins_under_the_budget(
    lengths: list[tuple[int, int]], budget: int
) -> None:
    samples = [sample_of(*one) for one in sorted(lengths)]
    packed = pack(samples, range(len(samples)), budget)
    assert sorted(place for bin_ in packed for place in bin_.places) == list(range(len(samples)))
    assert all(len(bin_.tokens) <= budget or len(bin_.places) == 1 for bin_ in packed)
    for bin_ in packed:
        assert len(bin_.rows) == len(bin_.targets) == sum(bin_.num_outputs)


def test_only_the_named_places_are_packed() -> None:
    samples = [sample_of(1, 3, seed) for seed in range(6)]
    assert sorted(place for bin_ in pack(samples, [1, 4], 100) for place in bin_.places) == [1, 4]


def test_first_fit_decreasing_fills_the_gaps() -> None:
    samples = [replace(sample_of(0, n), prompt=torch.tensor([n])) for n in (7, 3, 6, 4)]
    # No two share a prompt: as many tokens as outputs go through the model.
    assert sorted(sorted(bin_.num_outputs) for bin_ in pack(samples, range(4), 10)) == [[3, 7], [4, 6]]


@pytest.mark.parametrize("budget", [1, 60, 10_000])
@pytest.mark.parametrize("unmasked", [1, 17, 1024])
def test_a_packed_pass_gives_what_each_sample_gives_alone(
    make_model: Callable[[], CausalLM], monkeypatch: pytest.MonkeyPatch, budget: int, unmasked: int
) -> None:
    monkeypatch.setattr(packing, "SHORTEST_UNMASKED", unmasked)
    model = make_model().double()
    samples = [sample_of(p, n, seed) for seed, (p, n) in enumerate([(2, 5), (2, 1), (2, 17), (1, 4), (1, 4), (3, 30)])]
    packed = pack(samples, range(len(samples)), budget)
    assert any(max(bin_.packing.continues) >= 0 for bin_ in packed) == (budget > 1)
    for bin_ in packed:
        logprobs, entropy = Policy(model)(bin_, temperature=0.8)
        for place, piece, spread in zip(
            bin_.places, logprobs.split(bin_.num_outputs), entropy.split(bin_.num_outputs), strict=True
        ):
            sample = samples[place]
            hidden = model(sample.tokens, [len(sample)])[len(sample.prompt) - 1 : -1]
            logs = torch.log_softmax(model.logits(hidden) / 0.8, -1)
            torch.testing.assert_close(piece, logs.gather(1, sample.outputs[:, None])[:, 0], rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(spread, -(logs.exp() * logs).sum(-1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("unmasked", [1, 1024])
def test_gradients_of_a_shared_prompt_add_up(
    make_model: Callable[[], CausalLM], monkeypatch: pytest.MonkeyPatch, unmasked: int
) -> None:
    monkeypatch.setattr(packing, "SHORTEST_UNMASKED", unmasked)
    samples = [sample_of(2, n, seed=n) for n in (4, 9, 2)]

    def gradient(budget: int) -> torch.Tensor:
        model = make_model().double()
        packed = pack(samples, range(3), budget)
        assert len(packed) == (1 if budget > 1 else 3)
        for bin_ in packed:
            Policy(model)(bin_, 1.0)[0].sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    torch.testing.assert_close(gradient(1000), gradient(1), rtol=1e-6, atol=1e-9)
