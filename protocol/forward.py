"""The one forward pass that worker, verifier and trainer share (Llama and Qwen2 architectures, torch).

Two paths to the same numbers, up to float noise:

    packed       tokens [N] of S sequences ─▶ hidden [N, H]     verifier, trainer (differentiable)
    incremental  prefill of prompts ─▶ step ─▶ step … [B, H]    worker, with a `KvCache`

In: `ModelConfig` and weights (`protocol/weights.py`). Out: hidden states after the final norm, which
are what TOPLOC proofs are taken of; `logits(hidden)` maps them onto the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from protocol.errors import ProofpoolError
from protocol.gradients import gated, gated_linear, inverse_rms, linear, normed, normed_linears, wide
from protocol.kv_cache import KvCache
from protocol.packing import Packing
from protocol.products import product
from protocol.weights import ModelConfig, check_weights, load_weights

Rope = tuple[Tensor, Tensor]
"""Cosines and sines, each [N, 1, head dim]; the sines of the first half are negated."""
Keep = Callable[[Tensor, Tensor], None]
"""What takes a layer's keys and values, each [N, kv heads, head dim]."""


BLOCK_ROWS = 256
"""Rows that an MLP works on at a time without gradients on a CPU: 1.5 MiB of what lies between its projections."""


class RmsNorm(nn.Module):
    """x / rms(x) · weight over the last dimension, the mean taken in float32 (float64 stays)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return normed(x, self.weight, self.eps)
        return self.weight * (wide(x) * inverse_rms(x, self.eps)).to(x.dtype)


class Linear(nn.Linear):
    """nn.Linear by the quicker product."""

    def forward(self, x: Tensor) -> Tensor:
        return (linear if torch.is_grad_enabled() else product)(x, self.weight, self.bias)


def after_norm(norm: RmsNorm, x: Tensor, layers: Sequence[nn.Module]) -> Sequence[Tensor]:
    """norm(x) through each of `layers`."""
    plain = [layer for layer in layers if type(layer) is Linear]
    if torch.is_grad_enabled() and len(plain) == len(layers):
        return normed_linears(x, norm.weight, norm.eps, [(layer.weight, layer.bias) for layer in plain])
    y = norm(x)
    return [layer(y) for layer in layers]


class Attention(nn.Module):
    """Grouped-query attention with rotary positions; what it attends to is the caller's choice."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        queries, keys = config.num_attention_heads * self.head_dim, config.num_key_value_heads * self.head_dim
        self.q_proj = Linear(config.hidden_size, queries, bias=config.qkv_bias)
        self.k_proj = Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.v_proj = Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.o_proj = Linear(queries, config.hidden_size, bias=config.attention_bias)
        self.shares_heads = config.num_attention_heads != config.num_key_value_heads

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """[N, H] to rotated queries and keys and plain values, each [N, heads, head dim]."""
        return self.rotated([layer(x) for layer in self.projections()], rope)

    def projections(self) -> list[nn.Module]:
        """What makes queries, keys and values."""
        return [self.q_proj, self.k_proj, self.v_proj]

    def rotated(self, projected: Sequence[Tensor], rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """As `project`, of what its layers made, each [N, heads · head dim]."""
        queries, keys, values = (x.unflatten(-1, (-1, self.head_dim)) for x in projected)
        return rotate(queries, rope), rotate(keys, rope), values

    def attend_cached(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """One query a row ([B, heads, head dim]) over cached [T, B, kv heads, head dim]; `mask` [T, B] is added."""
        if self.shares_heads or queries.dtype != torch.float32:
            # The queries that share a key-value head stand where a sequence's queries would: keys are read once.
            q = queries.unflatten(1, (keys.shape[2], -1))
            k, v = (x.movedim(0, 2) for x in (keys, values))  # [B, kv heads, T, head dim]
            bias = mask.T[:, None, None].to(queries.dtype)
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).flatten(1)
        # Many short rows: streaming multiplications are twice as fast as a matrix product per row and head.
        scores = (keys * (queries * self.head_dim**-0.5)).sum(-1) + mask[:, :, None]
        weighted: Tensor = values * scores.softmax(0)[..., None]
        return weighted.sum(0).flatten(1)


class Mlp(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x)).

    Without gradients a CPU takes a block of rows at a time and works in place: what lies between the projections
    then stays in its cache.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, norm: RmsNorm) -> Tensor:
        """Of norm(x), [N, H] to [N, H]."""
        if x.is_cpu and not torch.is_grad_enabled():
            blocks = [self._in_place(rows) for rows in norm(x).split(BLOCK_ROWS)]
            return blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        gate, up = after_norm(norm, x, [self.gate_proj, self.up_proj])
        if torch.is_grad_enabled() and type(self.down_proj) is Linear:
            return gated_linear(gate, up, self.down_proj.weight)
        down: Tensor = self.down_proj(gated(gate, up))
        return down

    def _in_place(self, rows: Tensor) -> Tensor:
        between = functional.silu(self.gate_proj(rows), inplace=True)
        between *= self.up_proj(rows)
        down: Tensor = self.down_proj(between)
        return down


class Layer(nn.Module):
    """One pre-norm transformer block. Sub-module names are Hugging Face's, so state dicts map one to one.

    Where it `recomputes`, a backward pass runs it again, and only its input is kept from the forward pass.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.recomputes = False
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor, rope: Rope, packing: Packing, keep: Keep | None = None) -> Tensor:
        """Packed pass, [N, H] to [N, H]; `keep` gets the keys and values."""
        if self.recomputes and torch.is_grad_enabled():
            again: Tensor = checkpoint(self._packed, x, rope, packing, use_reentrant=False, preserve_rng_state=False)
            return again
        return self._packed(x, rope, packing, keep)

    def _packed(self, x: Tensor, rope: Rope, packing: Packing, keep: Keep | None = None) -> Tensor:
        projected = after_norm(self.input_layernorm, x, self.self_attn.projections())
        queries, keys, values = self.self_attn.rotated(projected, rope)
        if keep is not None:
            keep(keys, values)
        return self.close(x, attend_packed(queries, keys, values, packing))

    def close(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention: output projection, residual, MLP, residual."""
        x = x + self.self_attn.o_proj(mixed)
        summed: Tensor = x + self.mlp(x, self.post_attention_layernorm)
        return summed


class Decoder(nn.Module):
    """The stack that Hugging Face calls `model`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)


class CausalLM(nn.Module):
    """A causal language model. `state_dict()` has exactly the names of `ModelConfig.weight_shapes()`.

    Example::

        model = CausalLM.load(folder)                       # float32 on the CPU
        hidden = model(tokens, [5, 7])                      # int64 [12] -> [12, H]
        logits = model.logits(hidden)                       # [12, V]
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self._rope_tables: dict[tuple[torch.dtype, torch.device], Rope] = {}

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> CausalLM:
        """The model in a Hugging Face folder, computing in `dtype`."""
        return cls.of(ModelConfig.load(folder), load_weights(folder), dtype)

    @classmethod
    def without_weights(cls, config: ModelConfig) -> CausalLM:
        """A model whose float32 parameters take no memory yet (torch's "meta" device)."""
        with torch.device("meta"):
            return cls(config)

    @classmethod
    def of(cls, config: ModelConfig, weights: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> CausalLM:
        """A model with these weights (copied); raises MalformedFile where they don't fit `config`."""
        model = cls.without_weights(config)
        model.to_empty(device="cpu").to(dtype)
        model.set_weights(weights)
        return model

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copies weights of any floating dtype into the parameters, in place."""
        check_weights(self.config, weights)
        self.load_state_dict({name: weights[name] for name in self.config.weight_shapes()})

    def weights(self, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """A detached copy of all weights under their Hugging Face names, in `dtype` if given."""
        return {name: tensor.detach().to(dtype=dtype, copy=True) for name, tensor in self.state_dict().items()}

    def forward(self, tokens: Tensor, lengths: Sequence[int] | Packing) -> Tensor:
        """Packed pass: int64 [N] tokens of sequences of these lengths, to hidden states [N, H]."""
        return self._packed(tokens, _packing(lengths, tokens), None)

    def prefill(self, tokens: Tensor, lengths: Sequence[int], max_length: int) -> tuple[Tensor, KvCache]:
        """Packed pass over prompts that also fills a cache with room for `max_length` tokens a row.

        Returns hidden states of all prompt tokens ([N, H]; the last ones at `Packing.last_rows`) and the cache.
        """
        packing = _packing(lengths, tokens)
        if max(lengths) > max_length:
            raise ProofpoolError("a prompt is longer than the cache", f"{max(lengths)} > {max_length} tokens")
        cache = KvCache(self.config, len(lengths), max_length, like=self.model.norm.weight)
        return self._packed(tokens, packing, cache), cache

    def step(self, tokens: Tensor, cache: KvCache) -> Tensor:
        """One more token a row: int64 [B] to hidden states [B, H]; the cache grows by one."""
        cache.check_room()
        width = int(cache.lengths.max()) + 1
        unseen = torch.arange(width, device=tokens.device)[:, None] > cache.lengths
        mask = torch.zeros(unseen.shape, device=tokens.device).masked_fill(unseen, -torch.inf)
        rope, x = self._rope(cache.lengths), self.model.embed_tokens(tokens)
        for index, layer in enumerate(self.layers()):
            queries, keys, values = layer.self_attn.project(layer.input_layernorm(x), rope)
            cache.put(index, keys, values)
            seen = cache.keys[index, :width], cache.values[index, :width]
            x = layer.close(x, layer.self_attn.attend_cached(queries, *seen, mask))
        cache.lengths = cache.lengths + 1
        hidden: Tensor = self.model.norm(x)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., H] to unscaled logits [..., V]."""
        return (linear if torch.is_grad_enabled() else product)(hidden, self.head)

    @property
    def head(self) -> Tensor:
        """The head's weight [V, H]: the embedding's own where the model ties them."""
        weight: Tensor = (self.model.embed_tokens if self.config.tie_word_embeddings else self.lm_head).weight
        return weight

    def _packed(self, tokens: Tensor, packing: Packing, cache: KvCache | None) -> Tensor:
        rope, x = self._rope(packing.positions), self.model.embed_tokens(tokens)
        for index, layer in enumerate(self.layers()):
            x = layer(x, rope, packing, None if cache is None else partial(cache.fill, index, packing))
        if cache is not None:
            cache.lengths = torch.tensor(packing.lengths)
        hidden: Tensor = self.model.norm(x)
        return hidden

    def layers(self) -> list[Layer]:
        """Its blocks, first to last."""
        return [layer for layer in self.model.layers if isinstance(layer, Layer)]

    def _rope(self, positions: Tensor) -> Rope:
        """Rows of the tables at int64 [N] positions; raises where a position is past the model's range."""
        place = (self.model.norm.weight.dtype, positions.device)
        if place not in self._rope_tables:
            with torch.inference_mode(False):  # the trainer may need the tables of a model first used for decoding
                cosines, sines = rope_tables(self.config, place[0])
                self._rope_tables[place] = (cosines.to(place[1]), sines.to(place[1]))
        cosines, sines = self._rope_tables[place]
        if int(positions.max()) >= len(cosines):
            raise ProofpoolError("a sequence is longer than the model's positions", f"{len(cosines)} tokens")
        return cosines[positions], sines[positions]


def rope_tables(config: ModelConfig, dtype: torch.dtype) -> Rope:
    """Cosines and signed sines of every position, [positions, 1, head dim], computed in float32."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    positions = torch.arange(config.max_position_embeddings, dtype=torch.float32)
    angles = torch.outer(positions, 1.0 / config.rope_theta**exponents)[:, None]
    cosines, sines = angles.cos(), angles.sin()
    return torch.cat((cosines, cosines), -1).to(dtype), torch.cat((-sines, sines), -1).to(dtype)


def attend_packed(queries: Tensor, keys: Tensor, values: Tensor, packing: Packing) -> Tensor:
    """Causal attention within each sequence: [N, heads, head dim] to [N, heads · head dim]."""
    outputs, shares_heads = [], queries.shape[1] != keys.shape[1]
    for group in packing.groups:
        q = _gathered(queries, group.queries)
        k, v = (_gathered(x, group.keys) for x in (keys, values))
        mixed = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=group.sees, is_causal=group.sees is None, enable_gqa=shares_heads
        )
        outputs.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1))
    return torch.cat(outputs).index_select(0, packing.restore)


def _gathered(x: Tensor, rows: Tensor) -> Tensor:
    """Rows [B, T] of x [N, heads, head dim], as [B, heads, T, head dim]."""
    # Whole rows are copied several times as quickly as x[rows] copies them.
    return x.flatten(1).index_select(0, rows.flatten()).view(*rows.shape, *x.shape[1:]).transpose(1, 2)


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Rotates the pair (i, i + head dim / 2) of each head by its position's angle i. x: [N, heads, head dim]."""
    cosines, sines = rope
    return x * cosines + x.roll(x.shape[-1] // 2, -1) * sines


def _packing(lengths: Sequence[int] | Packing, tokens: Tensor) -> Packing:
    packing = lengths if isinstance(lengths, Packing) else Packing.of(lengths)
    if packing.num_tokens != len(tokens):
        raise ProofpoolError("lengths don't add up", f"{packing.num_tokens} against {len(tokens)} tokens")
    return packing
