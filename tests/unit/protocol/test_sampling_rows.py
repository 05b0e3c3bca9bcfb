"""The compiled scan against numpy's: equal tokens and margins on thousands of random cases, and the vectors."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import kernels, sampling, sampling_scan, sampling_torch
from protocol.errors import ProofpoolError
from protocol.rules import SamplingRules
from protocol.sampling_rows import RowStatistics, draw_tokens, measure_rows

VECTORS = Path(__file__).parents[2] / "data" / "sampling_vectors.json"
CLIP = 10.0
EOS_IDS = (0, 2)


@pytest.fixture
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "plain")


def keys_of(num_rows: int, seed: int = 0) -> sampling.Keys:
    return sampling.noise_keys(seed.to_bytes(32, "big"), list(range(num_rows)), [3] * num_rows)


def random_logits(rng: np.random.Generator, num_rows: int, vocab_size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Of many kinds: wide and flat, tied, huge, masked, one sure token, all equal."""
    logits = rng.normal(size=(num_rows, vocab_size)) * rng.choice([0.0, 1e-3, 1.0, 4.0, 30.0, 1e3])
    kind = rng.integers(7)
    if kind == 0:
        logits = np.round(logits * 4) / 4  # ties, as bfloat16 makes them
    elif kind == 1:
        logits[rng.random(logits.shape) < 0.5] = -np.inf
        logits[:, 0] = 0.0
    elif kind == 2:
        logits += rng.choice([1e4, -1e6, 1e12])
    elif kind == 3:
        logits[:, rng.integers(vocab_size)] += 60.0
    elif kind == 4:
        logits = np.where(rng.random(logits.shape) < 0.3, -0.0, np.round(logits))
    return logits.astype(np.float32)


def random_rules(rng: np.random.Generator, vocab_size: int) -> SamplingRules:
    return SamplingRules(
        temperature=float(rng.choice([1.0, 0.7, 1.3, 0.05, 10.0])),
        top_k=int(rng.choice([0, 0, 1, 4, vocab_size // 2, vocab_size, vocab_size + 9])),
        top_p=float(rng.choice([1.0, 1.0, 0.95, 0.5, 0.999, 1e-9, 1 - 1e-12])),
    )


def assert_like_plain(logits: Any, claimed: Any, keys: sampling.Keys, rule: SamplingRules) -> None:
    """Tokens and margins to the bit; log-probs to the last place of float32, the sums behind them to 1e-9."""
    tokens, logprobs = draw_tokens(logits, keys, rule)
    plain_tokens, plain_logprobs = sampling.draw_tokens(logits, keys, rule)
    assert (tokens == plain_tokens).all()
    np.testing.assert_allclose(logprobs, plain_logprobs, rtol=2e-7, atol=1e-7)
    rows = measure_rows(logits, claimed, keys, rule, clip=CLIP, eos_ids=EOS_IDS)
    assert (rows.drawn == tokens).all()
    assert (rows.margins == sampling.margins(logits, claimed, keys, rule, CLIP)).all()
    np.testing.assert_allclose(
        rows.logprobs, sampling.token_logprobs(logits, claimed, rule), rtol=2e-7, atol=1e-6, equal_nan=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernels.VARIABLE, "plain")
        plain = measure_rows(logits, claimed, keys, rule, clip=CLIP, eos_ids=EOS_IDS)
    assert (rows.runner_up_margins == plain.runner_up_margins).all()
    for field in fields(RowStatistics):
        np.testing.assert_allclose(
            getattr(rows, field.name), getattr(plain, field.name), rtol=1e-9, atol=1e-9, equal_nan=True
        )


@pytest.mark.parametrize("part", range(8))
def test_a_thousand_random_cases_are_as_in_the_plain_path(part: int) -> None:
    rng = np.random.default_rng(part)
    for number in range(130):
        vocab_size = int(rng.choice([3, 5, 16, 33, 255, 1000, 4096]))
        logits, rule = random_logits(rng, 2, vocab_size), random_rules(rng, vocab_size)
        assert_like_plain(logits, rng.integers(0, vocab_size, 2), keys_of(2, number), rule)


@pytest.mark.parametrize("vocab_size", [49_152, 60_000])
def test_large_vocabularies_are_as_in_the_plain_path(vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    for number in range(12):
        logits, rule = random_logits(rng, 2, vocab_size), random_rules(rng, vocab_size)
        assert_like_plain(logits, rng.integers(0, vocab_size, 2), keys_of(2, number), rule)


@given(
    st.lists(
        st.lists(st.one_of(st.floats(-40, 40, width=32), st.sampled_from([0.0, -0.0, 1.0, -np.inf])), min_size=8)
        .map(lambda values: [0.5, *values])
        .filter(lambda values: len(values) < 60),
        min_size=1,
        max_size=1,
    ),
    st.builds(
        SamplingRules,
        temperature=st.floats(0.01, 30),
        top_k=st.integers(0, 70),
        top_p=st.one_of(st.just(1.0), st.floats(1e-12, 1.0)),
    ),
    st.integers(0, 2**40),
)
@settings(max_examples=150, deadline=None)
def test_any_row_is_as_in_the_plain_path(rows: list[list[float]], rule: SamplingRules, seed: int) -> None:
    logits = np.array(rows, dtype=np.float32)
    assert_like_plain(logits, np.array([seed % logits.shape[1]]), keys_of(1, seed), rule)


def test_nearly_every_row_is_settled_by_the_kernel_and_ties_by_numpy() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(64, 4096)).astype(np.float32) * 3
    nobody = np.full(64, sampling_scan.NO_TOKEN)
    for rule in (SamplingRules(), SamplingRules(top_p=0.95), SamplingRules(top_k=40)):
        _, unsettled = sampling_scan._compiled_scan(logits, keys_of(64), rule, nobody, (), 0.0)
        assert len(unsettled) == 0
    halves = np.zeros((1, 16), dtype=np.float32)
    _, unsettled = sampling_scan._compiled_scan(halves, keys_of(1), SamplingRules(top_p=0.5), nobody[:1], (), 0.0)
    assert unsettled.tolist() == [0]  # eight of sixteen equal tokens weigh just what top_p asks for


@pytest.mark.parametrize("number", range(40))
@pytest.mark.parametrize("mode", ["compiled", "plain"])
def test_vectors_hold_on_both_ways(number: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, mode)
    case = json.loads(VECTORS.read_text())["cases"][number]
    keys = sampling.noise_keys(bytes.fromhex(case["seed"]), [case["sample"]], [case["position"]])
    rule = SamplingRules(temperature=case["temperature"], top_k=case["top_k"], top_p=case["top_p"])
    logits = np.array([case["logits"]], dtype=np.float32)
    tokens, logprobs = draw_tokens(logits, keys, rule)
    assert tokens.tolist() == [case["token"]]
    assert logprobs[0] == pytest.approx(case["logprob"], abs=1e-6)
    from_tensor, _ = sampling_torch.draw_rows(torch.from_numpy(logits), keys, rule)
    assert from_tensor.tolist() == [case["token"]]
    for token in range(16):
        margin = measure_rows(logits, np.array([token]), keys, rule, clip=CLIP).margins[0]
        assert (margin == 0) == (token == case["token"])
        assert token in case["kept"] or margin == CLIP


def test_statistics_are_those_of_the_distribution() -> None:
    """Against sums written out over the probabilities of a row."""
    rng = np.random.default_rng(3)
    logits, rule = (rng.normal(size=(5, 300)) * 6).astype(np.float32), SamplingRules(temperature=0.8, top_k=5)
    claimed = rng.integers(0, 300, 5)
    rows = measure_rows(logits, claimed, keys_of(5), rule, clip=CLIP, eos_ids=(1, 4))
    probabilities = np.exp(logits.astype(np.float64) / 0.8)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    each = np.arange(5)
    np.testing.assert_allclose(rows.entropies, -(probabilities * np.log(probabilities)).sum(axis=1))
    np.testing.assert_allclose(rows.eos_probabilities, probabilities[:, [1, 4]].sum(axis=1))
    np.testing.assert_allclose(
        rows.tiny_probabilities, np.where(probabilities < 1e-4, probabilities, 0).sum(axis=1), rtol=1e-9
    )
    np.testing.assert_allclose(rows.logprobs, np.log(probabilities[each, claimed]))
    np.testing.assert_allclose(rows.drawn_logprobs, np.log(probabilities[each, rows.drawn]))


def test_the_runner_up_stands_where_the_claimed_one_would() -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(20, 50)).astype(np.float32)
    noised = sampling.gumbel_noise(keys_of(20), 50) + logits
    second = np.argsort(noised, axis=1)[:, -2]
    rows = measure_rows(logits, second, keys_of(20), SamplingRules(), clip=CLIP)
    assert (rows.margins == rows.runner_up_margins).all()
    alone = measure_rows(logits, second, keys_of(20), SamplingRules(top_k=1), clip=CLIP)
    assert (alone.runner_up_margins == CLIP).all()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, "nothing"])
@pytest.mark.parametrize("rule", [SamplingRules(), SamplingRules(top_p=0.9), SamplingRules(top_k=2)])
@pytest.mark.parametrize("mode", ["compiled", "plain"])
def test_logits_that_arent_numbers_are_an_error_and_never_a_margin(
    bad: Any, rule: SamplingRules, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernels.VARIABLE, mode)
    logits = np.zeros((3, 40), dtype=np.float32)
    logits[1, 7:] = -np.inf if bad == "nothing" else bad
    logits[1, :7] = -np.inf if bad == "nothing" else 0.0
    with pytest.raises(ProofpoolError, match="finite") as raised:
        draw_tokens(logits, keys_of(3), rule)
    assert "row 1" in str(raised.value)
    rows = measure_rows(logits, np.zeros(3, dtype=np.int64), keys_of(3), rule, clip=CLIP)
    assert rows.margins[1] == CLIP
    assert rows.drawn[1] == sampling_scan.NO_TOKEN
    assert np.isnan(rows.logprobs).tolist() == [False, True, False]
    assert np.isnan(rows.entropies).tolist() == [False, True, False]
    assert (rows.margins == sampling.margins(logits, np.zeros(3, dtype=np.int64), keys_of(3), rule, CLIP)).all()


def test_ids_outside_of_the_vocabulary_are_refused_before_memory_is_read() -> None:
    logits, keys, good = np.zeros((2, 10), dtype=np.float32), keys_of(2), np.zeros(2, dtype=np.int64)
    assert len(measure_rows(logits, good, keys, SamplingRules(), clip=CLIP).margins) == 2
    for bad in (np.array([0, 10]), np.array([-1, 0])):
        with pytest.raises(ProofpoolError, match="vocabulary"):
            measure_rows(logits, bad, keys, SamplingRules(), clip=CLIP)
    with pytest.raises(ProofpoolError, match="vocabulary"):
        measure_rows(logits, good, keys, SamplingRules(), clip=CLIP, eos_ids=(10,))
    with pytest.raises(ProofpoolError, match="clip"):
        measure_rows(logits, good, keys, SamplingRules(), clip=1e9)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_dtypes_go_the_plain_way_and_strided_rows_too(dtype: Any) -> None:
    logits = np.random.default_rng(5).normal(size=(4, 200)).astype(dtype)
    assert draw_tokens(logits, keys_of(4), SamplingRules())[0].tolist() == (
        sampling.draw_tokens(logits, keys_of(4), SamplingRules())[0].tolist()
    )
    every_other = logits.astype(np.float32)[:, ::2]
    assert draw_tokens(every_other, keys_of(4), SamplingRules())[0].tolist() == (
        sampling.draw_tokens(every_other, keys_of(4), SamplingRules())[0].tolist()
    )


def test_no_rows_are_no_rows() -> None:
    logits = np.zeros((0, 10), dtype=np.float32)
    tokens, logprobs = draw_tokens(logits, keys_of(0), SamplingRules())
    assert len(tokens) == len(logprobs) == 0
    none = measure_rows(logits, tokens, keys_of(0), SamplingRules(), clip=CLIP)
    one = measure_rows(logits[:0], tokens, keys_of(0), SamplingRules(), clip=CLIP)
    assert len(RowStatistics.joined([none, one]).margins) == 0
