"""The language-model head without its logits: log-probs and entropies, a slice of rows at a time.

In: hidden states [N, H] and the head's weight [V, H]. Out: float32 [N] each, differentiable. Logits of 32,768 tokens
over 150,000 words would be 20 GB; here at most `LOGITS_BYTES` of them exist at once. Backward makes them again.

    d log p(y) / d z = (1[y] − p) / T          d H / d z = −p · (log p + H) / T
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from protocol.products import add_outer, product

LOGITS_BYTES = 1 << 26
"""Bytes of float32 logits at once. Larger slices aren't faster; smaller ones starve the matrix products."""


def token_logprobs(hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of each token under softmax(hidden · weightᵀ / T), and the entropy of that distribution (nats).

    hidden [N, H], weight [V, H], tokens int64 [N]; both results are float32 [N], computed in float32 (float64 stays).
    """
    logprobs, entropy = _TokenLogprobs.apply(hidden, weight, tokens, temperature)  # type: ignore[no-untyped-call]
    return logprobs, entropy


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        logprobs, entropies, normalisers = (_wide(hidden).new_empty(len(tokens)) for _ in range(3))
        for rows in _slices(len(tokens), len(weight)):
            logits = _logits(hidden[rows], weight, temperature)
            # Logits less their largest: each is finite, so 0 · it counts as 0, and near 0 where it weighs.
            largest = logits.amax(-1)
            logits -= largest[:, None]
            weights = logits.exp()
            total = weights.sum(-1)
            logprobs[rows] = logits.gather(1, tokens[rows, None])[:, 0] - total.log()
            entropies[rows] = total.log() - torch.einsum("nv,nv->n", weights, logits) / total
            normalisers[rows] = largest + total.log()
        ctx.save_for_backward(hidden, weight, tokens, normalisers, entropies)
        ctx.temperature = temperature
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        for_logprobs, for_entropy = gradients
        hidden, weight, tokens, normalisers, entropies = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=_wide(weight).dtype) if ctx.needs_input_grad[1] else None
        for_logprobs, for_entropy = for_logprobs[:, None] / ctx.temperature, for_entropy[:, None] / ctx.temperature
        has_entropy = bool(for_entropy.any())
        for rows in _slices(len(tokens), len(weight)):
            logs = _logits(hidden[rows], weight, ctx.temperature)
            logs -= normalisers[rows, None]
            if has_entropy:
                shares = logs.exp()
                logs.clamp_(min=torch.finfo(logs.dtype).min)
                to_logits = shares.mul_(-for_logprobs[rows] - for_entropy[rows] * (logs + entropies[rows, None]))
            else:
                to_logits = logs.exp_().mul_(-for_logprobs[rows])
            to_logits.scatter_add_(1, tokens[rows, None], for_logprobs[rows])
            to_logits = to_logits.to(weight.dtype)
            to_hidden[rows] = product(to_logits, weight.T)
            if to_weight is not None:
                add_outer(to_weight, to_logits, hidden[rows])
        return to_hidden, None if to_weight is None else to_weight.to(weight.dtype), None, None


def _logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """[n, V] in float32 or wider."""
    logits = _wide(product(hidden, weight))
    return logits if temperature == 1 else logits.div_(temperature)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _slices(num_rows: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, LOGITS_BYTES // (4 * vocabulary))
    return (slice(start, start + size) for start in range(0, num_rows, size))
