"""The torch engine: batched or one by one, the same tokens; what a proof and a verifier need comes along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.engines.base import Completion, Request
from protocol.engines.torch import TorchEngine
from protocol.errors import ProofpoolError
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.sampling import margins, noise_keys

SEED = bytes(range(32))
SAMPLING = SamplingRules(max_new_tokens=40)
EOS_IDS = (1,)


@pytest.fixture(scope="module")
def folder(make_model_folder: Callable[[int], Path]) -> Path:
    return make_model_folder(0)


def make_requests(num_groups: int, group_size: int) -> list[Request]:
    prompts = [np.arange(3, 5 + 3 * group, dtype=np.int32) % 24 for group in range(num_groups)]
    return [Request(g * group_size + j, prompt) for g, prompt in enumerate(prompts) for j in range(group_size)]


def generate(folder: Path, requests: list[Request], max_batch: int) -> list[Completion]:
    engine = TorchEngine(max_batch)
    engine.load(folder)
    found = engine.generate(requests, SEED, SAMPLING, EOS_IDS)
    return sorted(found, key=lambda completion: completion.sample)


def tokens_of(completions: list[Completion]) -> list[list[int]]:
    return [completion.output_tokens.tolist() for completion in completions]


@pytest.mark.parametrize("max_batch", [1, 5, 64])
def test_any_batch_gives_the_tokens_of_one_by_one(folder: Path, max_batch: int) -> None:
    requests = make_requests(4, 4)
    one_by_one = [completion for request in requests for completion in generate(folder, [request], 1)]
    batched = generate(folder, requests, max_batch)
    assert tokens_of(batched) == tokens_of(one_by_one)
    lengths = {len(completion.output_tokens) for completion in batched}
    assert len(lengths) > 4, "rows must leave at different times for this to mean anything"


def test_the_same_batch_twice_is_the_same_to_the_bit(folder: Path) -> None:
    first, second = (generate(folder, make_requests(2, 4), 8) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.output_tokens.tolist() == other.output_tokens.tolist()
        assert one.output_logprobs.tolist() == other.output_logprobs.tolist()
        assert torch.equal(one.hidden_rows, other.hidden_rows)


def test_completions_end_in_eos_or_at_the_limit(folder: Path) -> None:
    completions = generate(folder, make_requests(4, 4), 64)
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for completion in completions:
        tokens = completion.output_tokens.tolist()
        assert 1 not in tokens[:-1]
        if completion.finish_reason == "stop":
            assert tokens[-1] == 1
        else:
            assert len(tokens) == SAMPLING.max_new_tokens


def test_rows_logprobs_and_draws_are_those_of_a_packed_forward(folder: Path) -> None:
    requests = make_requests(3, 4)
    completions = generate(folder, requests, 5)
    model = CausalLM.load(folder)
    for request, completion in zip(requests, completions, strict=True):
        sequence = np.concatenate([request.input_tokens, completion.output_tokens[:-1]]).astype(np.int64)
        with torch.inference_mode():
            hidden = model(torch.from_numpy(sequence), [len(sequence)])[len(request.input_tokens) - 1 :]
            logits = model.logits(hidden).numpy()
        assert completion.hidden_rows.dtype == torch.bfloat16
        torch.testing.assert_close(completion.hidden_rows.float(), hidden, atol=1e-3, rtol=1e-2)
        num_tokens = len(completion.output_tokens)
        keys = noise_keys(SEED, [request.sample] * num_tokens, list(range(num_tokens)))
        assert margins(logits, completion.output_tokens.astype(np.int64), keys, SAMPLING, 10.0).max() < 1e-3
        expected = logits - np.logaddexp.reduce(logits.astype(np.float64), axis=1, keepdims=True)
        picked = expected[np.arange(num_tokens), completion.output_tokens]
        np.testing.assert_allclose(completion.output_logprobs, picked, atol=1e-4)


def test_other_weights_give_other_tokens(folder: Path, make_model_folder: Callable[[int], Path]) -> None:
    requests = make_requests(2, 2)
    engine = TorchEngine()
    engine.load(folder)
    first = list(engine.generate(requests, SEED, SAMPLING, EOS_IDS))
    engine.load(make_model_folder(1))
    second = list(engine.generate(requests, SEED, SAMPLING, EOS_IDS))
    assert tokens_of(first) != tokens_of(second)


def test_another_seed_gives_other_tokens(folder: Path) -> None:
    engine = TorchEngine()
    engine.load(folder)
    requests = make_requests(1, 2)
    first, second = (tokens_of(list(engine.generate(requests, s, SAMPLING, EOS_IDS))) for s in (SEED, bytes(32)))
    assert first != second


def test_no_requests_no_completions(folder: Path) -> None:
    assert generate(folder, [], 8) == []


def test_an_engine_without_weights_says_so() -> None:
    with pytest.raises(ProofpoolError, match="no weights"):
        list(TorchEngine().generate(make_requests(1, 1), SEED, SAMPLING, EOS_IDS))


def test_faulty_weights_are_an_error_and_no_rollouts(folder: Path) -> None:
    engine = TorchEngine()
    engine.load(folder)
    assert engine._model is not None
    with torch.no_grad():
        engine._model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ProofpoolError, match="finite"):
        list(engine.generate(make_requests(1, 1), SEED, SAMPLING, EOS_IDS))
