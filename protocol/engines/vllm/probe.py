"""Whether the running model computes what a folder's weights say: one forward of a few tokens, against our own.

In: a folder and the logits that the engine computed after some fixed tokens. Out: nothing, or ProofpoolError. The
reference reads the file a layer at a time, in float32 on the CPU, so that no second model is ever in memory.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from protocol.errors import ProofpoolError
from protocol.forward import Layer, RmsNorm, attend_packed, rope_tables
from protocol.packing import Packing
from protocol.weights import ModelConfig
from protocol.weights_file import WeightsFile

NUM_TOKENS = 16
STRIDE = 7919
"""A prime: tokens of the whole vocabulary."""
HEAD_ROWS = 8192
"""Rows of the head that are read at a time."""
LIMITS = {"float32": 1e-4, "bfloat16": 0.1}
"""Most divergence (KL, nats) between the two: rounding gives below 1e-8 and about 1e-3."""


def probe_tokens(config: ModelConfig) -> Tensor:
    """int64 [P]."""
    return torch.arange(1, 1 + min(NUM_TOKENS, config.max_position_embeddings - 1)) * STRIDE % config.vocab_size


def check_loaded(folder: Path, dtype: str, logits: Tensor) -> None:
    """Raises ProofpoolError unless float32 [V] `logits` follow from the folder's weights and `probe_tokens`."""
    expected = reference_logits(folder, probe_tokens(ModelConfig.load(folder))).log_softmax(-1)
    divergence = float((expected.exp() * (expected - logits.log_softmax(-1))).sum())
    if not divergence <= LIMITS[dtype]:
        raise ProofpoolError(
            "vLLM doesn't compute with the weights that it was given",
            f"KL {divergence:.3g} nats after a probe of {folder}, at most {LIMITS[dtype]:g}",
            'load the weights again; where it comes again, report it, and use engine = "torch"',
        )


@torch.inference_mode()
def reference_logits(folder: Path, tokens: Tensor) -> Tensor:
    """float32 [V]: the logits after the last of int64 [P] tokens."""
    config = ModelConfig.load(folder)
    with WeightsFile(folder, config) as file:
        x = file.tensor("model.embed_tokens.weight")[tokens].float()
        packing = Packing.of([len(tokens)])
        cosines, sines = rope_tables(config, torch.float32)
        rope = cosines[: len(tokens)], sines[: len(tokens)]
        for index in range(config.num_hidden_layers):
            layer = _layer(config, file, index)
            mixed = layer.self_attn.project(layer.input_layernorm(x), rope)
            x = layer.close(x, attend_packed(*mixed, packing))
        norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        norm.load_state_dict({"weight": file.tensor("model.norm.weight").float()})
        head = file.tensor("model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight")
        return torch.cat([functional.linear(norm(x[-1]), rows.float()) for rows in head.split(HEAD_ROWS)])


def _layer(config: ModelConfig, file: WeightsFile, index: int) -> Layer:
    with torch.device("meta"):
        layer = Layer(config)
    weights = {name: file.tensor(f"model.layers.{index}.{name}").float() for name in layer.state_dict()}
    layer.load_state_dict(weights, assign=True)
    return layer
