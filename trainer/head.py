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
            normaliser = logits.logsumexp(-1)
            logprobs[rows] = logits.gather(1, tokens[rows, None])[:, 0] - normaliser
            logits -= normaliser[:, None]
            # log p may be −∞ where p is 0, and 0 · −∞ counts as 0.
            entropies[rows] = -(logits.exp() * logits.clamp(min=torch.finfo(logits.dtype).min)).sum(-1)
            normalisers[rows] = normaliser
        ctx.save_for_backward(hidden, weight, tokens, normalisers, entropies)
        ctx.temperature = temperature
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        for_logprobs, for_entropy = gradients
        hidden, weight, tokens, normalisers, entropies = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=_wide(weight).dtype) if ctx.needs_input_grad[1] else None
        has_entropy = bool(for_entropy.any())
        for rows in _slices(len(tokens), len(weight)):
            logs = _logits(hidden[rows], weight, ctx.temperature)
            logs -= normalisers[rows, None]
            shares = logs.exp()
            pull = for_logprobs[rows, None].expand_as(shares)
            if has_entropy:
                logs.clamp_(min=torch.finfo(logs.dtype).min)
                pull = pull + for_entropy[rows, None] * (logs + entropies[rows, None])
            to_logits = shares.mul_(pull).neg_()
            to_logits.scatter_add_(1, tokens[rows, None], for_logprobs[rows, None])
            to_logits = to_logits.div_(ctx.temperature).to(weight.dtype)
            to_hidden[rows] = to_logits @ weight
            if to_weight is not None:
                to_weight += to_logits.T @ hidden[rows]
        return to_hidden, None if to_weight is None else to_weight.to(weight.dtype), None, None


def _logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """[n, V] in float32 or wider."""
    return _wide(hidden @ weight.T).div_(temperature)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _slices(num_rows: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, LOGITS_BYTES // (4 * vocabulary))
    return (slice(start, start + size) for start in range(0, num_rows, size))
