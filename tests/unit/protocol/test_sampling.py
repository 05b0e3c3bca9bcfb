"""Seeded sampling against an implementation in plain Python, and what must hold of any logits and seed.

Rewrite the vectors: PYTHONPATH=. python tests/unit/protocol/test_sampling.py
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import sampling, sampling_torch
from protocol.errors import ProofpoolError
from protocol.rules import SamplingRules

VECTORS = Path(__file__).parents[2] / "data" / "sampling_vectors.json"
SETTINGS = (
    SamplingRules(),
    SamplingRules(temperature=0.7),
    SamplingRules(top_k=4),
    SamplingRules(temperature=1.3, top_p=0.8),
    SamplingRules(temperature=0.9, top_k=6, top_p=0.6),
)
MASK = 2**64 - 1
NUM_VECTORS = 40

logits_rows = st.lists(
    st.lists(st.floats(-12, 12, width=32), min_size=9, max_size=9).map(tuple), min_size=1, max_size=5
)
rules = st.builds(
    SamplingRules,
    temperature=st.floats(0.1, 3),
    top_k=st.integers(0, 12),
    top_p=st.one_of(st.just(1.0), st.floats(0.05, 1.0)),
)
seeds = st.binary(min_size=32, max_size=32)


def slow_key(seed: bytes, sample: int, position: int) -> int:
    message = seed + sample.to_bytes(4, "big") + position.to_bytes(4, "big")
    return int.from_bytes(hashlib.sha256(message).digest()[:8], "big")


def slow_uniform_numerator(key: int, token: int) -> int:
    """u is this odd number over 2^53."""
    z = (key + (token + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    z ^= z >> 31
    return 2 * (z >> 12) + 1


def slow_kept(scaled: list[float], top_k: int, top_p: float) -> list[int]:
    order = sorted(range(len(scaled)), key=lambda token: (-scaled[token], token))
    order = order[: top_k or None]
    weights = [math.exp(scaled[token] - scaled[order[0]]) for token in order]
    return [t for i, t in enumerate(order) if top_p >= 1 or sum(weights[:i]) < top_p * sum(weights)]


def slow_draw(logits: list[float], key: int, rule: SamplingRules) -> dict[str, Any]:
    scaled = [value / rule.temperature for value in logits]
    noise = [-math.log(-math.log(slow_uniform_numerator(key, t) / 2**53)) for t in range(len(logits))]
    kept = sorted(slow_kept(scaled, rule.top_k, rule.top_p))
    noised = {t: scaled[t] + noise[t] for t in kept}
    token = max(kept, key=lambda t: (noised[t], -t))
    total = math.log(sum(math.exp(value - max(scaled)) for value in scaled)) + max(scaled)
    return {"kept": kept, "token": token, "logprob": scaled[token] - total, "noised": noised[token]}


def slow_vectors() -> dict[str, Any]:
    """Draws for fixed seeds; logits in sixteenths, so that ties happen and JSON holds them exactly."""
    source = random.Random(7)
    cases = []
    for number in range(NUM_VECTORS):
        rule = SETTINGS[number % len(SETTINGS)]
        seed, sample, position = source.randbytes(32), source.randrange(2**32), source.randrange(2**12)
        logits = [source.randrange(-40, 40) / 16 for _ in range(16)]
        key = slow_key(seed, sample, position)
        cases.append(
            {
                "seed": seed.hex(),
                "sample": sample,
                "position": position,
                "key": f"{key:016x}",
                "uniform_numerators": [str(slow_uniform_numerator(key, t)) for t in range(16)],
                "temperature": rule.temperature,
                "top_k": rule.top_k,
                "top_p": rule.top_p,
                "logits": logits,
                **slow_draw(logits, key, rule),
            }
        )
    return {"uniform_denominator": str(2**53), "cases": cases}


def keys_of(seed: bytes, num_rows: int) -> sampling.Keys:
    return sampling.noise_keys(seed, list(range(num_rows)), [0] * num_rows)


def test_vectors_are_what_plain_python_computes() -> None:
    for committed, computed in zip(json.loads(VECTORS.read_text())["cases"], slow_vectors()["cases"], strict=True):
        for name, value in computed.items():
            assert committed[name] == (pytest.approx(value) if isinstance(value, float) else value), name


@pytest.mark.parametrize("number", range(NUM_VECTORS))
def test_vectors_hold(number: int) -> None:
    case = json.loads(VECTORS.read_text())["cases"][number]
    keys = sampling.noise_keys(bytes.fromhex(case["seed"]), [case["sample"]], [case["position"]])
    assert f"{keys[0]:016x}" == case["key"]
    exact = [int(n) / 2**53 for n in case["uniform_numerators"]]
    assert sampling.uniforms(keys, 16)[0].tolist() == exact
    rule = SamplingRules(temperature=case["temperature"], top_k=case["top_k"], top_p=case["top_p"])
    logits = np.array([case["logits"]], dtype=np.float32)
    kept = sampling.kept_tokens(logits.astype(np.float64) / rule.temperature, rule)
    assert np.flatnonzero(kept[0]).tolist() == case["kept"]
    tokens, logprobs = sampling.draw_tokens(logits, keys, rule)
    assert tokens.tolist() == [case["token"]]
    assert logprobs[0] == pytest.approx(case["logprob"], abs=1e-6)


@given(seeds, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_uniforms_lie_strictly_between_zero_and_one(seed: bytes, sample: int, position: int) -> None:
    uniforms = sampling.uniforms(sampling.noise_keys(seed, [sample], [position]), 257)
    assert uniforms.min() > 0
    assert uniforms.max() < 1
    assert np.isfinite(sampling.gumbel_noise(keys_of(seed, 2), 257)).all()


def test_extreme_words_of_the_mixer_stay_inside() -> None:
    """0 and 2^64 - 1 after mixing: the whole range of u, both ends exact in float64."""
    ends = np.array([0, MASK], dtype=np.uint64) >> np.uint64(sampling.UNIFORM_SHIFT)
    low, high = (ends + 0.5) * sampling.UNIFORM_SCALE
    assert (low, high) == (2.0**-53, 1 - 2.0**-53)


@given(logits_rows, rules, seeds)
@settings(max_examples=60, deadline=None)
def test_torch_and_numpy_agree(rows: list[tuple[float, ...]], rule: SamplingRules, seed: bytes) -> None:
    logits, keys = np.array(rows, dtype=np.float32), keys_of(seed, len(rows))
    tensor, words = torch.from_numpy(logits), sampling_torch.as_tensor(keys)
    assert (sampling_torch.uniforms(words, 9).numpy() == sampling.uniforms(keys, 9)).all()
    tokens, logprobs = sampling.draw_tokens(logits, keys, rule)
    other_tokens, other_logprobs = sampling_torch.draw_tokens(tensor, words, rule)
    assert tokens.tolist() == other_tokens.tolist()
    np.testing.assert_allclose(logprobs, other_logprobs.numpy(), atol=1e-6)
    claimed = np.full(len(rows), 3)
    ours = sampling.margins(logits, claimed, keys, rule, 10.0)
    theirs = sampling_torch.margins(tensor, torch.from_numpy(claimed), words, rule, 10.0)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-12)


@given(logits_rows, rules, seeds)
def test_no_token_outside_the_kept_set_is_drawn(
    rows: list[tuple[float, ...]], rule: SamplingRules, seed: bytes
) -> None:
    logits = np.array(rows, dtype=np.float32)
    tokens, _ = sampling.draw_tokens(logits, keys_of(seed, len(rows)), rule)
    for row, token in zip(rows, tokens, strict=True):
        assert token in slow_kept([float(np.float32(v)) / rule.temperature for v in row], rule.top_k, rule.top_p)


@given(logits_rows, rules, seeds)
def test_the_drawn_token_has_margin_zero_and_others_more(
    rows: list[tuple[float, ...]], rule: SamplingRules, seed: bytes
) -> None:
    logits, keys = np.array(rows, dtype=np.float32), keys_of(seed, len(rows))
    tokens, logprobs = sampling.draw_tokens(logits, keys, rule)
    assert (sampling.margins(logits, tokens, keys, rule, 10.0) == 0).all()
    assert (sampling.token_logprobs(logits, tokens, rule) == logprobs).all()
    others = (tokens + 1) % 9
    wrong = sampling.margins(logits, others, keys, rule, 10.0)
    assert ((wrong > 0) & (wrong <= 10)).all()


def test_tied_logits_are_kept_by_lowest_id() -> None:
    scaled = np.array([[1.0, 2.0, 2.0, 2.0, 0.0]])
    assert sampling.kept_tokens(scaled, SamplingRules(top_k=2)).tolist() == [[False, True, True, False, False]]
    assert sampling.kept_tokens(scaled, SamplingRules(top_p=1e-9)).tolist() == [[False, True, False, False, False]]


def test_tied_noised_logits_go_to_the_lowest_id() -> None:
    keys = keys_of(bytes(32), 1)
    noise = sampling.gumbel_noise(keys, 2)
    logits = (noise.max() - noise).astype(np.float64)  # x + (y - x) == y for these two
    noised = logits + noise
    assert noised[0, 0] == noised[0, 1]
    assert sampling.draw_tokens(logits, keys, SamplingRules())[0].tolist() == [0]


@given(st.permutations(range(9)), seeds)
def test_temperature_towards_zero_is_greedy(order: list[int], seed: bytes) -> None:
    logits = np.array([order], dtype=np.float32)
    tokens, logprobs = sampling.draw_tokens(logits, keys_of(seed, 1), SamplingRules(temperature=1e-3))
    assert tokens[0] == order.index(8)
    assert logprobs[0] == pytest.approx(0)


def test_draws_follow_the_softmax() -> None:
    """Chi-square over 20,000 draws of one distribution, 6 degrees of freedom: 22.5 is the 99.9 % point."""
    num_draws = 20_000
    row = np.array([0.0, 1.0, 2.0, -1.0, 0.5, 0.5, -3.0], dtype=np.float32)
    tokens, _ = sampling.draw_tokens(np.tile(row, (num_draws, 1)), keys_of(b"chi-square", num_draws), SamplingRules())
    expected = num_draws * np.exp(row) / np.exp(row).sum()
    assert ((np.bincount(tokens, minlength=7) - expected) ** 2 / expected).sum() < 22.5


def test_keys_differ_by_seed_sample_and_position() -> None:
    keys = {
        int(sampling.noise_keys(seed, [sample], [position])[0])
        for seed in (bytes(32), b"\1" * 32)
        for sample in range(8)
        for position in range(8)
    }
    assert len(keys) == 2 * 8 * 8


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_arent_numbers_are_an_error_and_never_a_margin(bad: float) -> None:
    logits, keys = np.array([[0.0, bad]]), keys_of(bytes(32), 1)
    with pytest.raises(ProofpoolError, match="finite"):
        sampling.draw_tokens(logits, keys, SamplingRules())
    with pytest.raises(ProofpoolError, match="finite"):
        sampling_torch.draw_tokens(torch.from_numpy(logits), sampling_torch.as_tensor(keys), SamplingRules())
    claimed = np.array([0])
    for rule in (SamplingRules(), SamplingRules(top_k=1), SamplingRules(top_p=0.5)):
        assert sampling.margins(logits, claimed, keys, rule, 10.0).tolist() == [10.0]
        tensors = torch.from_numpy(logits), torch.from_numpy(claimed), sampling_torch.as_tensor(keys)
        assert sampling_torch.margins(*tensors, rule, 10.0).tolist() == [10.0]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.random.default_rng(0).normal(size=(50, 9)).astype(np.float32)
    keys = keys_of(bytes(32), 50)
    whole, _ = sampling.draw_tokens(logits, keys, SamplingRules())
    monkeypatch.setattr(sampling, "BLOCK_VALUES", 20)
    assert sampling.draw_tokens(logits, keys, SamplingRules())[0].tolist() == whole.tolist()


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(slow_vectors(), indent=1) + "\n")
