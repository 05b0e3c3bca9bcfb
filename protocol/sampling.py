"""Seeded sampling: which token a task's seed draws from given logits, and how far a claimed one is off.

Gumbel-max with counter-based noise. For one row of logits, at `position` (0 for the first output
token) of rollout number `sample` in its task, all in float64 and uint64 (wrapping):

    key     = first 8 bytes, big-endian, of SHA-256(seed ‖ uint32_be(sample) ‖ uint32_be(position))
    z       = key + (token_id + 1) · 0x9E3779B97F4A7C15
    z       = (z ^ z >> 30) · 0xBF58476D1CE4E5B9;  z = (z ^ z >> 27) · 0x94D049BB133111EB;  z = z ^ z >> 31
    u       = ((z >> 12) + 0.5) · 2^-52            odd multiples of 2^-53: exact, never 0 or 1
    noised  = logit / temperature − log(−log u)    of the kept tokens; the others are out
    token   = argmax of noised, ties to the lowest id

Kept: tokens are put in order of logit / temperature, highest first, equal ones by id. `top_k` keeps
the first k. `top_p` then keeps each of these whose predecessors have less than `top_p` of the
probability that top_k left (so the first one always stays). 0 and 1 keep everything.

In: logits [B, V] and `noise_keys` [B]. Out: tokens and log-probs, or the margins that a verifier
pools. `protocol/sampling_torch.py` is the same on tensors of any device.
Sources: SplitMix64's finaliser (Steele et al., 2014); margins after Token-DiFR.
Vectors: tests/data/sampling_vectors.json.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from protocol.errors import ProofpoolError
from protocol.rules import SamplingRules

Keys = npt.NDArray[np.uint64]
Float64Array = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int64]
Logits = npt.NDArray[np.floating]

STEP = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31
UNIFORM_SHIFT = 12
UNIFORM_SCALE = 2.0**-52
BLOCK_VALUES = 1 << 18
"""Logits worked on at a time: 2 MiB of float64 an array, whatever the vocabulary."""


def noise_keys(seed: bytes, samples: Sequence[int] | Tokens, positions: Sequence[int] | Tokens) -> Keys:
    """uint64 [N]: one key for each pair (rollout number in the task, index of the output token)."""
    prefix = hashlib.sha256(seed)
    keys = np.empty(len(samples), dtype=np.uint64)
    for index, (sample, position) in enumerate(zip(samples, positions, strict=True)):
        digest = prefix.copy()
        digest.update(struct.pack(">II", sample, position))
        keys[index] = int.from_bytes(digest.digest()[:8], "big")
    return keys


def uniforms(keys: Keys, vocab_size: int) -> Float64Array:
    """float64 [B, V] in (0, 1): the u of every token id."""
    return _mixed(keys[:, None], np.arange(1, vocab_size + 1, dtype=np.uint64))


def gumbel_noise(keys: Keys, vocab_size: int) -> Float64Array:
    """float64 [B, V]: −log(−log u), between −3.7 and 36.8."""
    return _gumbel(uniforms(keys, vocab_size))


def token_noise(keys: Keys, tokens: Tokens) -> Float64Array:
    """float64 [N]: the noise of one token a row, equal to `gumbel_noise`'s to the bit."""
    return _gumbel(_mixed(keys, tokens.astype(np.uint64) + np.uint64(1)))


def kept_tokens(scaled: Float64Array, sampling: SamplingRules) -> npt.NDArray[np.bool_]:
    """bool [B, V]: what top_k and top_p leave of logits that are already divided by the temperature."""
    order = np.argsort(-scaled, axis=1, kind="stable")
    ordered = np.take_along_axis(scaled, order, axis=1)
    if sampling.top_k:
        ordered[:, sampling.top_k :] = -np.inf
    with np.errstate(invalid="ignore"):
        weights = np.exp(ordered - ordered[:, :1])
    before = np.cumsum(weights, axis=1) - weights
    chosen = np.isfinite(ordered)
    if sampling.top_p < 1:
        chosen &= before < sampling.top_p * weights.sum(axis=1, keepdims=True)
    kept = np.empty_like(chosen)
    np.put_along_axis(kept, order, chosen, axis=1)
    return kept


def draw_tokens(logits: Logits, keys: Keys, sampling: SamplingRules) -> tuple[Tokens, Float32Array]:
    """The token of each row (int64 [B]) and its log-prob (float32 [B], nats, before top-k and top-p).

    Raises ProofpoolError where logits aren't finite numbers: an engine with a fault must not sample from it.
    """
    tokens = np.empty(len(logits), dtype=np.int64)
    logprobs = np.empty(len(logits), dtype=np.float32)
    for rows in row_blocks(*logits.shape):
        scaled = scaled_logits(logits[rows], sampling)
        tokens[rows] = np.argmax(noised_logits(scaled, keys[rows], sampling), axis=1)
        logprobs[rows] = _logprobs(scaled, tokens[rows])
    if not np.isfinite(logprobs).all():
        raise ProofpoolError("the model's logits aren't finite", f"row {int(np.argmin(np.isfinite(logprobs)))}")
    return tokens, logprobs


def margins(logits: Logits, claimed: Tokens, keys: Keys, sampling: SamplingRules, clip: float) -> Float64Array:
    """float64 [N] in [0, clip]: how far each claimed token's noised logit lies below the row's best.

    0 is the drawn token itself. A claimed token outside the kept set, and a row whose logits aren't
    finite, count `clip`. `claimed` must be ids of the vocabulary.
    """
    found = np.empty(len(logits), dtype=np.float64)
    for rows in row_blocks(*logits.shape):
        scaled = scaled_logits(logits[rows], sampling)
        noised = noised_logits(scaled, keys[rows], sampling)
        with np.errstate(invalid="ignore"):
            found[rows] = noised.max(axis=1) - picked(noised, claimed[rows])
        found[rows][~np.isfinite(scaled.max(axis=1))] = clip
    return np.where(found <= clip, found, clip)


def token_logprobs(logits: Logits, tokens: Tokens, sampling: SamplingRules) -> Float32Array:
    """float32 [N]: log-prob of each row's given token after temperature, before top-k and top-p."""
    logprobs = np.empty(len(logits), dtype=np.float32)
    for rows in row_blocks(*logits.shape):
        logprobs[rows] = _logprobs(scaled_logits(logits[rows], sampling), tokens[rows])
    return logprobs


def keeps_all(sampling: SamplingRules) -> bool:
    """Whether the whole vocabulary can be drawn."""
    return sampling.top_k == 0 and sampling.top_p >= 1


def _mixed(keys: Keys, numbers: npt.NDArray[np.uint64]) -> Float64Array:
    """u of the tokens number 1, 2, … under each key (broadcast)."""
    z = keys + numbers * np.uint64(STEP)
    for shift, factor in MIX:
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(LAST_SHIFT)
    z >>= np.uint64(UNIFORM_SHIFT)
    return (z + 0.5) * UNIFORM_SCALE


def _gumbel(uniforms: Float64Array) -> Float64Array:
    noise = np.log(uniforms)
    np.negative(noise, out=noise)
    np.log(noise, out=noise)
    return np.negative(noise, out=noise)


def scaled_logits(logits: Logits, sampling: SamplingRules) -> Float64Array:
    return logits.astype(np.float64) / sampling.temperature


def noised_logits(scaled: Float64Array, keys: Keys, sampling: SamplingRules) -> Float64Array:
    noised = gumbel_noise(keys, scaled.shape[1])
    noised += scaled
    if not keeps_all(sampling):
        noised[~kept_tokens(scaled, sampling)] = -np.inf
    return noised


def _logprobs(scaled: Float64Array, tokens: Tokens) -> Float64Array:
    top = scaled.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        total = np.log(np.exp(scaled - top).sum(axis=1))
        logprobs: Float64Array = picked(scaled, tokens) - top[:, 0] - total
        return logprobs


def picked(values: Float64Array, tokens: Tokens) -> Float64Array:
    taken: Float64Array = np.take_along_axis(values, tokens[:, None], axis=1)[:, 0]
    return taken


def row_blocks(num_rows: int, vocab_size: int) -> Iterator[slice]:
    size = max(1, BLOCK_VALUES // vocab_size)
    return (slice(start, start + size) for start in range(0, num_rows, size))
