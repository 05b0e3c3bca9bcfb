"""FLOPs of passes, held against products counted one by one, and against torch's own counter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from protocol.forward import CausalLM
from protocol.packing import Packing
from protocol.rollouts import Rollout
from protocol.rules import Rules
from trainer.bins import pack
from trainer.flops import (
    adapter_flops,
    attending_pairs,
    attention_flops,
    forward_flops,
    layer_weights,
    learnt_flops,
    product_flops,
    step_flops,
)
from trainer.learner import Learner, RecipeConfig
from trainer.lora import LoraConfig
from trainer.samples import TrainingBatch, batch_of


def test_pairs_are_those_of_causal_attention() -> None:
    assert attending_pairs(Packing.of([3])) == 1 + 2 + 3
    assert attending_pairs(Packing.of([3, 2])) == 6 + 3
    assert attending_pairs(Packing.of([3, 2, 1], [-1, 0, 0])) == 6 + (4 + 5) + 4


def test_products_of_a_pass_are_those_that_torch_counts(
    make_model: Callable[[], CausalLM],
    make_learner: Callable[..., Learner],
    batch: TrainingBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All but attention's, which torch counts in full squares, and not at all where it is one fused call."""
    monkeypatch.setattr("protocol.products._by_onednn", lambda x: False)  # torch doesn't count oneDNN's
    model, learner = make_model(), make_learner()
    (bin_,) = pack(batch.samples, range(len(batch.samples)), 1 << 20)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        learner.policy(bin_, 1.0)
    counts = {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}
    products = sum(count for name, count in counts.items() if "mm" in name and "bmm" not in name)
    heads = model.config.num_attention_heads * model.config.head_dim
    attention = 4 * model.config.num_hidden_layers * heads * attending_pairs(bin_.packing)
    assert forward_flops(model.config, bin_) == products + attention
    assert layer_weights(model.config) == 2 * (4 * 16 * 16 + 3 * 16 * 32)


def test_a_step_counts_learnt_passes_three_times_and_others_once(
    make_model: Callable[[], CausalLM], make_rollout: Callable[..., Rollout], rules: Rules
) -> None:
    config = make_model().config
    batch = batch_of([make_rollout(number // 4 * 4, reward=float(number % 2)) for number in range(8)], rules)
    places = [range(4), range(4, 8)]
    first, second = (sum(forward_flops(config, b) for b in pack(batch.samples, part, 64)) for part in places)

    def flops(**recipe: object) -> float:
        return step_flops(config, RecipeConfig.model_validate({"max_tokens": 64, **recipe}), batch)

    alone = sum(forward_flops(config, b) for b in pack(batch.samples, range(8), 64))
    assert flops(optimizer_steps=2) == 3 * (first + second) + second
    assert flops(optimizer_steps=1) == 3 * alone
    assert flops(optimizer_steps=1, objective={"kl_coefficient": 0.1}) == 4 * alone


def test_frozen_weights_have_no_gradient_to_compute_and_adapters_have(
    make_model: Callable[[], CausalLM], batch: TrainingBatch
) -> None:
    config, lora = make_model().config, LoraConfig(rank=2, targets=("q_proj", "up_proj"))
    (bin_,) = pack(batch.samples, range(len(batch.samples)), 1 << 20)
    num_tokens = len(bin_.tokens)
    adapters = 2 * num_tokens * config.num_hidden_layers * (2 * (16 + 16) + 2 * (16 + 32))
    assert adapter_flops(config, bin_, lora) == adapters and adapter_flops(config, bin_, None) == 0
    assert learnt_flops(config, bin_) == 3 * (product_flops(config, bin_) + attention_flops(config, bin_))
    trained = attention_flops(config, bin_) + adapters
    assert learnt_flops(config, bin_, lora) == 2 * product_flops(config, bin_) + 3 * trained
    recipe = RecipeConfig(optimizer_steps=1, max_tokens=1 << 20, lora=lora)
    assert step_flops(config, recipe, batch) == learnt_flops(config, bin_, lora)
