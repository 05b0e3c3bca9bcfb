"""`protocol/sampling.py` on tensors of any device: the same uniforms to the bit, the same tokens.

In: logits [B, V] where the model left them, keys [B] as int64 (`as_tensor`). Out: tensors on the same
device. Logarithms of two libraries may differ in the last place, which moves a token only where two noised logits
agree to 15 digits. `draw_rows` is for engines: where the logits are in main memory it takes the compiled scan of
`protocol/sampling_rows.py`. The rules are those of `protocol/sampling.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from protocol import sampling_rows
from protocol.errors import ProofpoolError
from protocol.rules import SamplingRules
from protocol.sampling import (
    LAST_SHIFT,
    MIX,
    STEP,
    UNIFORM_SCALE,
    UNIFORM_SHIFT,
    Float32Array,
    Keys,
    Tokens,
    keeps_all,
)


def as_tensor(keys: Keys, device: torch.device | str = "cpu") -> Tensor:
    """int64 [N] with the bits of the uint64 keys: torch multiplies and adds int64 modulo 2^64."""
    return torch.from_numpy(keys.view(np.int64).copy()).to(device)


def draw_rows(logits: Tensor, keys: Keys, sampling: SamplingRules) -> tuple[Tokens, Float32Array]:
    """`draw_tokens` where the logits are: compiled on a processor, by tensors elsewhere. float32 isn't copied."""
    if logits.device.type == "cpu":
        return sampling_rows.draw_tokens(logits.float().numpy(), keys, sampling)
    tokens, logprobs = draw_tokens(logits.float(), as_tensor(keys, logits.device), sampling)
    return tokens.cpu().numpy(), logprobs.cpu().numpy()


def uniforms(keys: Tensor, vocab_size: int) -> Tensor:
    """float64 [B, V] in (0, 1), equal to numpy's to the bit."""
    steps = torch.arange(1, vocab_size + 1, dtype=torch.int64, device=keys.device) * _signed(STEP)
    z = keys[:, None] + steps
    for shift, factor in MIX:
        z = (z ^ _shifted(z, shift)) * _signed(factor)
    z = z ^ _shifted(z, LAST_SHIFT)
    return (_shifted(z, UNIFORM_SHIFT).double() + 0.5) * UNIFORM_SCALE


def gumbel_noise(keys: Tensor, vocab_size: int) -> Tensor:
    """float64 [B, V]."""
    return -torch.log(-torch.log(uniforms(keys, vocab_size)))


def kept_tokens(scaled: Tensor, sampling: SamplingRules) -> Tensor:
    """bool [B, V]: what top_k and top_p leave of logits that are already divided by the temperature."""
    ordered, order = torch.sort(scaled, dim=1, descending=True, stable=True)
    if sampling.top_k:
        ordered[:, sampling.top_k :] = -torch.inf
    weights = torch.exp(ordered - ordered[:, :1])
    before = torch.cumsum(weights, dim=1) - weights
    chosen = torch.isfinite(ordered)
    if sampling.top_p < 1:
        chosen &= before < sampling.top_p * weights.sum(dim=1, keepdim=True)
    return torch.empty_like(chosen).scatter_(1, order, chosen)


def draw_tokens(logits: Tensor, keys: Tensor, sampling: SamplingRules) -> tuple[Tensor, Tensor]:
    """The token of each row (int64 [B]) and its log-prob (float32 [B], nats, before top-k and top-p).

    Raises ProofpoolError where logits aren't finite numbers.
    """
    scaled = logits.double() / sampling.temperature
    tokens = _noised(scaled, keys, sampling).argmax(dim=1)
    logprobs = _logprobs(scaled, tokens)
    if not bool(torch.isfinite(logprobs).all()):
        raise ProofpoolError("the model's logits aren't finite", f"{int((~torch.isfinite(logprobs)).sum())} rows")
    return tokens, logprobs


def margins(logits: Tensor, claimed: Tensor, keys: Tensor, sampling: SamplingRules, clip: float) -> Tensor:
    """float64 [N] in [0, clip]: how far each claimed token's noised logit lies below the row's best."""
    scaled = logits.double() / sampling.temperature
    noised = _noised(scaled, keys, sampling)
    found = noised.amax(dim=1) - noised.gather(1, claimed[:, None])[:, 0]
    return torch.where(torch.isfinite(scaled.amax(dim=1)) & (found <= clip), found, clip)


def token_logprobs(logits: Tensor, tokens: Tensor, sampling: SamplingRules) -> Tensor:
    """float32 [N]: log-prob of each row's given token after temperature, before top-k and top-p."""
    return _logprobs(logits.double() / sampling.temperature, tokens)


def _noised(scaled: Tensor, keys: Tensor, sampling: SamplingRules) -> Tensor:
    noised = scaled + gumbel_noise(keys, scaled.shape[1])
    return noised if keeps_all(sampling) else noised.masked_fill(~kept_tokens(scaled, sampling), -torch.inf)


def _logprobs(scaled: Tensor, tokens: Tensor) -> Tensor:
    return (scaled.gather(1, tokens[:, None])[:, 0] - scaled.logsumexp(dim=1)).float()


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _shifted(z: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own repeats the sign bit."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
