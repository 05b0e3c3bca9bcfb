"""How much a step computes, and how much of the device that is: FLOPs of the passes, and MFU.

    forward pass of N tokens with R trained ones =  2·N·(weights of the layers' products) + 2·R·H·V
                                                  + 4·layers·(heads · head size)·(pairs that attend)

In: a model's shape and a step's packed passes. Out: floating-point operations, a multiplication and an addition being
two. A pass that is learnt from counts three times, once forward and twice backward; what is run again to save memory
doesn't count. MFU is that, by the seconds of learning and the device's peak: PaLM (arXiv:2204.02311), appendix B.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from protocol.packing import NOTHING, Packing
from protocol.weights import ModelConfig
from trainer.bins import Bin, pack
from trainer.learner import RecipeConfig
from trainer.samples import TrainingBatch, split_groups

LEARNT_PASS = 3
"""Forward passes that a forward and a backward pass cost as much as."""
LEAST_SECONDS = 0.05
"""A product that is quicker than this is too short to be timed."""
LARGEST_PRODUCT = 16_384
NUM_PRODUCTS = 5


def step_flops(config: ModelConfig, recipe: RecipeConfig, batch: TrainingBatch) -> float:
    """Of all passes that a step of `batch` takes: old log-probs, the reference's, and the optimizer steps."""
    parts = split_groups(len(batch.samples), batch.group_size, recipe.optimizer_steps)
    later = [place for part in parts[1:] for place in part]
    everything = range(len(batch.samples))
    passes = [(LEARNT_PASS, part) for part in parts] + [(1, later)]
    passes += [(1, list(everything))] if recipe.objective.kl_coefficient else []
    return sum(
        times * forward_flops(config, bin_)
        for times, places in passes
        for bin_ in pack(batch.samples, places, recipe.max_tokens)
    )


def forward_flops(config: ModelConfig, bin_: Bin) -> float:
    """Of one pass forward."""
    heads = config.num_attention_heads * config.head_dim
    products = 2.0 * len(bin_.tokens) * layer_weights(config)
    attention = 4.0 * config.num_hidden_layers * heads * attending_pairs(bin_.packing)
    return products + attention + 2.0 * len(bin_.rows) * config.hidden_size * config.vocab_size


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


def measured_peak(device: torch.device, dtype: torch.dtype, seconds: Callable[[], float] = time.perf_counter) -> float:
    """Floating-point operations a second of the quickest of some square products, on as many threads as torch has."""
    size = 256
    while True:
        matrix = torch.ones(size, size, device=device, dtype=dtype)
        took = min(_product_seconds(matrix, seconds) for _ in range(NUM_PRODUCTS))
        if took >= LEAST_SECONDS or size >= LARGEST_PRODUCT:
            return 2.0 * size**3 / max(took, 1e-9)
        size *= 2


def _product_seconds(matrix: torch.Tensor, seconds: Callable[[], float]) -> float:
    _wait_for(matrix.device)
    started = seconds()
    torch.mm(matrix, matrix)
    _wait_for(matrix.device)
    return seconds() - started


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
