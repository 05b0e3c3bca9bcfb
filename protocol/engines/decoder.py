"""The model as the torch engine computes it: weights laid out for products of few rows, attention over paged rows.

    prefill  packed prompts ─▶ keys and values into their blocks, hidden states [N, H]
    step     one token a row ─▶ hidden states [B, H], each row's keys and values one longer

The same numbers as `protocol/forward.py` up to float noise, whose packed attention it shares. In: weights, a paged
cache. Out: hidden states after the final norm, and `logits`. What isn't a matrix product is compiled
(`decode_kernels.py`) on processors that have numba, else plain torch; steps of small models are so as a whole
(`whole_step.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from protocol.engines.packed_linear import PackedLinear
from protocol.engines.paged_cache import Blocks, PagedCache
from protocol.engines.parts import Indices, Norm, Parts, make_parts
from protocol.engines.places import Place, Places, parted
from protocol.engines.whole_step import WholeStep, fits
from protocol.errors import ProofpoolError
from protocol.forward import Rope, attend_packed, rope_tables, rotate
from protocol.packing import Packing
from protocol.weights import ModelConfig, check_weights


@dataclass(frozen=True, eq=False)
class DecoderLayer:
    """One transformer block: queries, keys and values from one product, gate and up from another."""

    before_attention: Norm
    qkv: PackedLinear
    output: PackedLinear
    before_mlp: Norm
    gate_up: PackedLinear
    down: PackedLinear

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], prefix: str, parts: Parts) -> DecoderLayer:
        def joined(module: str, *names: str) -> PackedLinear:
            weight = torch.cat([weights[f"{prefix}.{module}.{name}.weight"] for name in names])
            biases = [weights[key] for name in names if (key := f"{prefix}.{module}.{name}.bias") in weights]
            return PackedLinear(weight, torch.cat(biases) if biases else None)

        return cls(
            before_attention=parts.norm(weights[f"{prefix}.input_layernorm.weight"]),
            qkv=joined("self_attn", "q_proj", "k_proj", "v_proj"),
            output=joined("self_attn", "o_proj"),
            before_mlp=parts.norm(weights[f"{prefix}.post_attention_layernorm.weight"]),
            gate_up=joined("mlp", "gate_proj", "up_proj"),
            down=joined("mlp", "down_proj"),
        )

    def places(self, prefix: str, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Place]]:
        """Each weight of the layer, and where it lies."""

        def of(linear: PackedLinear, *names: str) -> Iterator[tuple[str, Place]]:
            yield from parted(linear.place(), [f"{prefix}.{name}.weight" for name in names], shapes)
            if linear.bias is not None:
                yield from parted(Place.plain(linear.bias), [f"{prefix}.{name}.bias" for name in names], shapes)

        yield f"{prefix}.input_layernorm.weight", Place.plain(self.before_attention.weight)
        yield from of(self.qkv, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        yield from of(self.output, "self_attn.o_proj")
        yield f"{prefix}.post_attention_layernorm.weight", Place.plain(self.before_mlp.weight)
        yield from of(self.gate_up, "mlp.gate_proj", "mlp.up_proj")
        yield from of(self.down, "mlp.down_proj")


class Decoder:
    """Example::

    decoder = Decoder(config, load_weights(folder), torch.float32)
    cache = PagedCache(config, 4096, decoder.cache_dtype)
    hidden = decoder.prefill(tokens, packing, cache, tables)
    """

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        check_weights(config, weights)
        self.config = config
        self.dtype = dtype
        self._parts = parts = make_parts(config, dtype)
        cast = {name: weights[name].detach().to(dtype) for name in config.weight_shapes()}
        self._embeddings = cast["model.embed_tokens.weight"]
        self._layers = [DecoderLayer.of(cast, f"model.layers.{i}", parts) for i in range(config.num_hidden_layers)]
        self._norm = parts.norm(cast["model.norm.weight"])
        self._head = PackedLinear(self._embeddings if config.tie_word_embeddings else cast["lm_head.weight"])
        self._rope = rope_tables(config, dtype)
        self._whole = WholeStep(config, cast) if fits(config, dtype) else None

    @property
    def cache_dtype(self) -> torch.dtype:
        """What the paged cache is to hold."""
        return self._parts.cache_dtype

    def places(self) -> Places:
        """Where each weight lies, in all the layouts that it has here: what is written there is what comes next."""
        shapes = self.config.weight_shapes()
        found: dict[str, list[Place]] = {name: [] for name in shapes}
        found["model.embed_tokens.weight"].append(Place.plain(self._embeddings))
        head = "model.embed_tokens" if self.config.tie_word_embeddings else "lm_head"
        found[f"{head}.weight"].append(self._head.place())
        found["model.norm.weight"].append(Place.plain(self._norm.weight))
        for number, layer in enumerate(self._layers):
            for name, place in layer.places(f"model.layers.{number}", shapes):
                found[name].append(place)
        for name, place in self._whole.places() if self._whole is not None else ():
            found[name].append(place)
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        """[B, H] to unscaled logits [B, V]."""
        return self._head(hidden)

    def prefill(self, tokens: Tensor, packing: Packing, cache: PagedCache, tables: Sequence[Blocks]) -> Tensor:
        """Packed prompts, int64 [N], to hidden states [N, H]; `tables` are the blocks of each."""
        self.check_length(int(packing.positions.max()) + 1)
        rope: Rope = (self._rope[0][packing.positions], self._rope[1][packing.positions])
        blocks, insides = cache.places(tables, packing.lengths)
        x = functional.embedding(tokens, self._embeddings)
        for index, layer in enumerate(self._layers):
            queries, keys, values = self._heads(layer, x)
            queries, keys = rotate(queries, rope), rotate(keys, rope)
            cache.keys[index, blocks, :, insides] = keys.to(cache.keys.dtype)
            cache.values[index, blocks, :, insides] = values.to(cache.values.dtype)
            x = self._close(layer, x, attend_packed(queries, keys, values, packing))
        return self._norm(x)

    def step(self, tokens: Tensor, cache: PagedCache, tables: Indices, slots: Indices, positions: Indices) -> Tensor:
        """One more token a row, int64 [B], to hidden states [B, H].

        Row b's blocks are `tables[slots[b]]`, and it has `positions[b]` earlier tokens.
        """
        self.check_length(int(positions.max()) + 1)
        if self._whole is not None:
            return self._whole(tokens, cache, tables, slots, positions)
        x = functional.embedding(tokens, self._embeddings)
        attend = self._parts.attention(cache, tables, slots, positions)
        for index, layer in enumerate(self._layers):
            heads = layer.qkv(layer.before_attention(x))
            x = self._close(layer, x, attend(index, heads))
        return self._norm(x)

    def check_length(self, num_tokens: int) -> None:
        """Raises ProofpoolError where the model has no positions for so many tokens."""
        if num_tokens > self.config.max_position_embeddings:
            limit = self.config.max_position_embeddings
            raise ProofpoolError("a sequence is longer than the model's positions", f"{num_tokens} of {limit} tokens")

    def _heads(self, layer: DecoderLayer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        num_queries, num_kv = self.config.num_attention_heads, self.config.num_key_value_heads
        heads = layer.qkv(layer.before_attention(x)).unflatten(-1, (-1, self.config.head_dim))
        queries, keys, values = heads.split([num_queries, num_kv, num_kv], dim=1)
        return queries, keys, values

    def _close(self, layer: DecoderLayer, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention: output projection, residual, MLP, residual."""
        x = layer.output.plus(mixed, x)
        between = self._parts.swiglu(layer.gate_up(layer.before_mlp(x)))
        return layer.down.plus(between, x)
