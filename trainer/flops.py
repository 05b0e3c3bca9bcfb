"""How much a step computes, and how much of the device that is: FLOPs of the passes, and MFU.

    forward pass of N tokens with R trained ones =  2·N·(weights of the layers' products) + 2·R·H·V
                                                  + 4·layers·(heads · head size)·(pairs that attend)

In: a model's shape and a step's packed passes. Out: floating-point operations, a multiplication and an addition being
two. A pass that is learnt from counts three times, once forward and twice backward, for the inputs' gradient and for
the weights'; frozen weights have none. What is run again to save memory doesn't count. MFU is that, by the seconds of
learning and the device's peak: PaLM (arXiv:2204.02311), appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from protocol.packing import NOTHING, Packing
from protocol.weights import ModelConfig
from trainer.bins import Bin, pack
from trainer.learner import RecipeConfig
from trainer.lora import LoraConfig, num_adapter_parameters
from trainer.samples import TrainingBatch, split_groups

LEARNT, LEARNT_FROZEN = 3, 2
"""Forward passes that one forward and backward costs as much as, through trained weights and through frozen ones."""


def step_flops(config: ModelConfig, recipe: RecipeConfig, batch: TrainingBatch) -> float:
    """Of all passes that a step of `batch` takes: old log-probs, the reference's, and the optimizer steps."""

    def bins(places: Iterable[int]) -> list[Bin]:
        return pack(batch.samples, list(places), recipe.max_tokens)

    parts = split_groups(len(batch.samples), batch.group_size, recipe.optimizer_steps)
    later = bins(place for part in parts[1:] for place in part)
    reference = bins(range(len(batch.samples))) if recipe.objective.kl_coefficient else []
    learnt = [bin_ for part in parts for bin_ in bins(part)]
    return (
        sum(learnt_flops(config, bin_, recipe.lora) for bin_ in learnt)
        + sum(forward_flops(config, bin_) + adapter_flops(config, bin_, recipe.lora) for bin_ in later)
        + sum(forward_flops(config, bin_) for bin_ in reference)
    )


def forward_flops(config: ModelConfig, bin_: Bin) -> float:
    """Of one pass forward, without adapters."""
    return product_flops(config, bin_) + attention_flops(config, bin_)


def learnt_flops(config: ModelConfig, bin_: Bin, lora: LoraConfig | None = None) -> float:
    """Of one pass forward and backward; with `lora`, the model is frozen and its adapters are trained."""
    if lora is None:
        return LEARNT * forward_flops(config, bin_)
    trained = attention_flops(config, bin_) + adapter_flops(config, bin_, lora)
    return LEARNT_FROZEN * product_flops(config, bin_) + LEARNT * trained


def product_flops(config: ModelConfig, bin_: Bin) -> float:
    """Of the model's matrices, head included, forward."""
    head = 2.0 * len(bin_.rows) * config.hidden_size * config.vocab_size
    return 2.0 * len(bin_.tokens) * layer_weights(config) + head


def attention_flops(config: ModelConfig, bin_: Bin) -> float:
    """Of queries by keys, and of what they pick by values, forward."""
    heads = config.num_attention_heads * config.head_dim
    return 4.0 * config.num_hidden_layers * heads * attending_pairs(bin_.packing)


def adapter_flops(config: ModelConfig, bin_: Bin, lora: LoraConfig | None) -> float:
    """Of adapters, forward."""
    return 0.0 if lora is None else 2.0 * len(bin_.tokens) * num_adapter_parameters(config.weight_shapes(), lora)


def layer_weights(config: ModelConfig) -> int:
    """Weights that every token is multiplied with: the matrices of all layers, neither embeddings nor head."""
    shapes = config.weight_shapes().items()
    return sum(math.prod(shape) for name, shape in shapes if name.startswith("model.layers.") and len(shape) == 2)


def attending_pairs(packing: Packing) -> int:
    """Pairs of a token and one that it sees, itself and what its sequence continues included."""
    continued = [0 if of == NOTHING else packing.lengths[of] for of in packing.continues]
    return sum(
        length * before + length * (length + 1) // 2 for length, before in zip(packing.lengths, continued, strict=True)
    )
