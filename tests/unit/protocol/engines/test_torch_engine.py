"""The torch engine: batched or one by one, the same tokens; what a proof and a verifier need comes along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.engines import shared_prompts
from protocol.engines.base import Completion, Request, generate, requests_of
from protocol.engines.torch import TorchEngine
from protocol.errors import ProofpoolError
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.sampling import margins, noise_keys

SEED = bytes(range(32))
SAMPLING = SamplingRules(max_new_tokens=40)
COOL = SamplingRules(max_new_tokens=50, temperature=0.8, top_k=12)
EOS_IDS = (1,)


@pytest.fixture(scope="module")
def folder(make_model_folder: Callable[[int], Path]) -> Path:
    return make_model_folder(0)


def make_requests(num_groups: int, group_size: int, seed: bytes = SEED) -> list[Request]:
    prompts = [np.arange(3, 5 + 3 * group, dtype=np.int32) % 24 for group in range(num_groups)]
    return requests_of(seed, [prompt for prompt in prompts for _ in range(group_size)], SAMPLING, EOS_IDS)


def loaded(folder: Path, max_batch: int = 64) -> TorchEngine:
    engine = TorchEngine(max_batch)
    engine.load(folder)
    return engine


def completed(folder: Path, requests: list[Request], max_batch: int) -> list[Completion]:
    return sorted(generate(loaded(folder, max_batch), requests), key=lambda completion: completion.sample)


def tokens_of(completions: list[Completion]) -> list[list[int]]:
    return [completion.output_tokens.tolist() for completion in completions]


@pytest.mark.parametrize("max_batch", [1, 5, 64])
def test_any_batch_gives_the_tokens_of_one_by_one(folder: Path, max_batch: int) -> None:
    requests = make_requests(4, 4)
    one_by_one = [completion for request in requests for completion in completed(folder, [request], 1)]
    batched = completed(folder, requests, max_batch)
    assert tokens_of(batched) == tokens_of(one_by_one)
    lengths = {len(completion.output_tokens) for completion in batched}
    assert len(lengths) > 4, "rows must leave at different times for this to mean anything"


def test_the_same_batch_twice_is_the_same_to_the_bit(folder: Path) -> None:
    first, second = (completed(folder, make_requests(2, 4), 8) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.output_tokens.tolist() == other.output_tokens.tolist()
        assert one.output_logprobs.tolist() == other.output_logprobs.tolist()
        assert torch.equal(one.hidden_rows, other.hidden_rows)


def test_completions_end_in_eos_or_at_the_limit(folder: Path) -> None:
    completions = completed(folder, make_requests(4, 4), 64)
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
    completions = completed(folder, requests, 5)
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
    engine = loaded(folder)
    first = list(generate(engine, requests))
    engine.load(make_model_folder(1))
    second = list(generate(engine, requests))
    assert tokens_of(first) != tokens_of(second)


def test_another_seed_gives_other_tokens(folder: Path) -> None:
    engine = loaded(folder)
    first, second = (tokens_of(list(generate(engine, make_requests(1, 2, seed)))) for seed in (SEED, bytes(32)))
    assert first != second


def test_no_requests_no_completions(folder: Path) -> None:
    assert completed(folder, [], 8) == []


def test_an_engine_without_weights_says_so() -> None:
    with pytest.raises(ProofpoolError, match="no weights"):
        TorchEngine().add(make_requests(1, 1))


def test_faulty_weights_are_an_error_and_no_rollouts(folder: Path) -> None:
    model = CausalLM.load(folder)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    engine = TorchEngine()
    engine.use(model)
    with pytest.raises(ProofpoolError, match="finite"):
        list(generate(engine, make_requests(1, 1)))
    assert not engine.has_work
    engine.load(folder)
    assert len(list(generate(engine, make_requests(1, 1)))) == 1


def test_requests_may_join_and_several_tasks_share_a_batch(folder: Path) -> None:
    other = [replace(request, sampling=COOL) for request in make_requests(2, 3, bytes(32))]
    alone = completed(folder, make_requests(2, 3), 64), completed(folder, other, 64)
    engine = loaded(folder, max_batch=4)
    engine.add(make_requests(2, 3))
    found = [completion for _ in range(3) for completion in engine.step()]
    engine.add(other)
    while engine.has_work:
        found += engine.step()
    for seed, expected in zip((SEED, bytes(32)), alone, strict=True):
        mine = sorted((c for c in found if c.request.seed == seed), key=lambda c: c.sample)
        assert tokens_of(mine) == tokens_of(expected)


def test_it_says_how_many_requests_wait(folder: Path) -> None:
    engine = loaded(folder, max_batch=4)
    engine.add(make_requests(2, 3))
    assert engine.num_waiting == 6
    engine.step()
    assert engine.num_waiting <= 2
    while engine.has_work:
        engine.step()
    assert engine.num_waiting == 0


def test_aborted_work_is_gone_and_what_comes_next_is_as_ever(folder: Path) -> None:
    engine = loaded(folder, max_batch=4)
    engine.add(make_requests(2, 3, bytes(32)))
    engine.step()
    engine.abort()
    assert not engine.has_work
    assert engine.step() == []
    again = sorted(generate(engine, make_requests(2, 3)), key=lambda completion: completion.sample)
    assert tokens_of(again) == tokens_of(completed(folder, make_requests(2, 3), 64))


def test_weights_are_not_taken_while_there_is_work(folder: Path, make_model_folder: Callable[[int], Path]) -> None:
    engine = loaded(folder)
    engine.add(make_requests(1, 2))
    for _ in range(2):
        with pytest.raises(ProofpoolError, match="has work"):
            engine.load(make_model_folder(1))
        engine.step()
    engine.abort()
    engine.load(make_model_folder(1))


def test_generate_leaves_other_work_alone(folder: Path) -> None:
    engine = loaded(folder)
    engine.add(make_requests(1, 2))
    with pytest.raises(ProofpoolError, match="has work"):
        list(generate(engine, make_requests(1, 1)))
    assert engine.has_work


def test_who_stops_early_leaves_no_work_behind(folder: Path) -> None:
    engine = loaded(folder)
    found = generate(engine, make_requests(2, 4))
    next(found)
    found.close()
    assert not engine.has_work


def test_a_closed_engine_has_no_weights_until_it_is_loaded_again(folder: Path) -> None:
    engine = loaded(folder)
    engine.close()
    with pytest.raises(ProofpoolError, match="no weights"):
        engine.add(make_requests(1, 1))
    engine.load(folder)
    engine.add(make_requests(1, 1))
    assert engine.has_work


def test_rollouts_wait_for_room_in_the_cache(folder: Path) -> None:
    requests = make_requests(3, 4)
    engine = TorchEngine(max_batch=64, max_cache_tokens=256)  # a prompt's block, and four a rollout
    engine.load(folder)
    engine.add(requests)
    found = engine.step()
    assert engine.num_waiting > 0
    while engine.has_work:
        found += engine.step()
    found.sort(key=lambda completion: completion.sample)
    assert tokens_of(found) == tokens_of(completed(folder, requests, 64))
    assert tokens_of(sorted(generate(engine, requests), key=lambda c: c.sample)) == tokens_of(found)


def test_a_rollout_that_may_outgrow_the_cache_is_refused_and_none_is_added(folder: Path) -> None:
    engine = TorchEngine(max_cache_tokens=64)
    engine.load(folder)
    fits = make_requests(1, 1)
    with pytest.raises(ProofpoolError, match="max_cache_tokens"):
        engine.add([*fits, replace(fits[0], sampling=SamplingRules(max_new_tokens=60))])
    assert not engine.has_work
    assert len(list(generate(engine, fits))) == 1


def test_a_prompt_without_tokens_is_refused_in_any_company(folder: Path) -> None:
    engine = loaded(folder)
    sound, empty = make_requests(2, 1)
    empty = replace(empty, input_tokens=np.array([], dtype=np.int32))
    with pytest.raises(ProofpoolError, match="prompt without tokens"):
        engine.add([sound, empty])
    assert not engine.has_work
    assert len(list(generate(engine, [sound]))) == 1


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32])
def test_a_prompt_of_any_length_is_shared_by_its_rollouts(folder: Path, length: int) -> None:
    prompt = (np.arange(length, dtype=np.int32) * 7 + 3) % 24
    together = completed(folder, requests_of(SEED, [prompt] * 5, SAMPLING, EOS_IDS), 2)
    model = CausalLM.load(folder)
    for completion in together:
        sequence = torch.from_numpy(np.concatenate([prompt, completion.output_tokens[:-1]]).astype(np.int64))
        with torch.inference_mode():
            hidden = model(sequence, [len(sequence)])[length - 1 :]
        torch.testing.assert_close(completion.hidden_rows.float(), hidden, atol=1e-3, rtol=1e-2)


def test_long_prompts_in_a_pass_of_their_own_give_the_same_tokens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = completed(folder, make_requests(4, 3), 5)
    monkeypatch.setattr(shared_prompts, "SHORT_TOKENS", 6)
    assert tokens_of(completed(folder, make_requests(4, 3), 5)) == tokens_of(expected)


def test_without_compiled_kernels_the_tokens_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = completed(folder, make_requests(3, 2), 4)
    monkeypatch.setenv("PROOFPOOL_KERNELS", "plain")
    assert tokens_of(completed(folder, make_requests(3, 2), 4)) == tokens_of(compiled)


def test_a_bfloat16_engine_draws_as_a_bfloat16_forward_does(folder: Path) -> None:
    engine = TorchEngine(8, torch.bfloat16)
    engine.load(folder)
    model = CausalLM.load(folder, torch.bfloat16)
    requests = make_requests(2, 4)
    for completion in generate(engine, requests):
        sequence = np.concatenate([completion.request.input_tokens, completion.output_tokens[:-1]]).astype(np.int64)
        with torch.inference_mode():
            hidden = model(torch.from_numpy(sequence), [len(sequence)])[len(completion.request.input_tokens) - 1 :]
            logits = model.logits(hidden).float().numpy()
        keys = noise_keys(SEED, [completion.sample] * len(logits), list(range(len(logits))))
        found = margins(logits, completion.output_tokens.astype(np.int64), keys, SAMPLING, 10.0)
        assert np.mean(found) < 0.02
        assert float((completion.hidden_rows.float() - hidden.float()).abs().mean()) < 0.02
