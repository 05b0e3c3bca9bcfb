"""A decoding step of a small model by one kernel (`step_kernel.py`), its weights in the order in which they are read.

A step of the testnet's model is 40 small parts, and calling each takes longer than computing it. Larger models gain
less, would hold their weights twice (prompts that are long go part by part, always), and may use several threads:
`protocol/engines/decoder.py` computes their steps part by part. In: weights in float32. Out: hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from protocol.engines.paged_cache import BLOCK_TOKENS, PagedCache
from protocol.engines.parts import Indices, flat_rope
from protocol.engines.places import Place, parted
from protocol.errors import ProofpoolError
from protocol.kernels import are_enabled
from protocol.weights import ModelConfig

LAYER_ORDER = (
    ("input_layernorm",),
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("post_attention_layernorm",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
MOST_WEIGHTS = 1 << 22
"""In the layers, on one thread; on several, which steps in parts share, as many times fewer."""


class WholeStep:
    """Example: `WholeStep(config, weights)(tokens, cache, tables, slots, positions)`, as `Decoder.step`."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
        from protocol.engines import step_kernel

        self._step, self._panel = step_kernel.step, step_kernel.PANEL
        self._layers, self._between = map(np.uint64, (config.num_hidden_layers, config.intermediate_size))
        heads = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self._shape = tuple(map(np.uint64, (*heads, BLOCK_TOKENS)))
        self._eps = np.float32(config.rms_norm_eps)
        self._cosines, self._sines = flat_rope(config, torch.float32)
        self._embeddings = weights["model.embed_tokens.weight"].numpy()
        # torch's memory begins where a vector may: numpy's doesn't.
        self._flat = torch.cat(list(_in_order(config, weights, self._panel)))
        self._weights, self._config = self._flat.numpy(), config

    def __call__(
        self, tokens: Tensor, cache: PagedCache, tables: Indices, slots: Indices, positions: Indices
    ) -> Tensor:
        out = torch.empty(len(tokens), self._embeddings.shape[1])
        are_known = self._step(
            tokens.numpy(), self._embeddings, self._weights, cache.keys.view(-1).numpy(), cache.values.view(-1).numpy(),
            tables, slots, positions, self._cosines, self._sines, self._shape, self._between, self._layers, self._eps,
            out.numpy(),
        )  # fmt: skip
        if not are_known:
            what = f"{int(tokens.min())} to {int(tokens.max())} of {len(self._embeddings)}"
            raise ProofpoolError("a token isn't of the vocabulary", what)
        return out

    def places(self) -> Iterator[tuple[str, Place]]:
        """Each weight that is laid out here, and where. The embeddings are the decoder's own."""
        start, shapes, panel = 0, self._config.weight_shapes(), self._panel
        for names in _order(self._config):
            num_rows, *inputs = sum(shapes[name][0] for name in names), *shapes[names[0]][1:]
            vector = Place.plain(self._flat[start : start + num_rows])
            start += num_rows
            if not inputs:
                yield from parted(vector, names, shapes)
                continue
            yield from parted(vector, [bias for name in names if (bias := _bias_of(name)) in shapes], shapes)
            row = torch.arange(num_rows)
            rows = start + row // panel * (inputs[0] * panel) + row % panel
            yield from parted(Place(self._flat, rows, torch.arange(inputs[0]) * panel), names, shapes)
            start += num_rows * inputs[0]


def fits(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether a model's steps can be taken as a whole, and are quicker so."""
    if dtype != torch.float32 or not are_enabled():
        return False
    from protocol.engines.step_kernel import PANEL

    hidden, between = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    heads = queries + 2 * config.num_key_value_heads * config.head_dim
    num_weights = config.num_hidden_layers * (hidden * (heads + queries) + 3 * hidden * between)
    return num_weights * torch.get_num_threads() <= MOST_WEIGHTS and not any(
        columns % PANEL for columns in (heads, hidden, 2 * between)
    )


def _order(config: ModelConfig) -> Iterator[list[str]]:
    """The weights in the order in which they are read, those of one product together."""
    for number in range(config.num_hidden_layers):
        for modules in LAYER_ORDER:
            yield [f"model.layers.{number}.{module}.weight" for module in modules]
    yield ["model.norm.weight"]


def _in_order(config: ModelConfig, weights: Mapping[str, Tensor], panel: int) -> Iterator[Tensor]:
    for names in _order(config):
        weight = torch.cat([weights[name] for name in names])
        if weight.ndim == 1:
            yield weight
            continue
        # Bias, zeros where there is none, and panels [columns / panel, inputs, panel] of a product.
        biases = [weights[bias] for name in names if (bias := _bias_of(name)) in weights]
        yield torch.cat(biases) if biases else torch.zeros(len(weight))
        yield weight.unflatten(0, (-1, panel)).transpose(1, 2).flatten()


def _bias_of(weight: str) -> str:
    return f"{weight.removesuffix('weight')}bias"
