"""vLLM's tokens are the torch engine's, its files pass the verifier, and nothing of its scheduling shows in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.engines.base import Completion, Request, generate
from protocol.engines.torch import TorchEngine
from protocol.engines.vllm import desk
from protocol.engines.vllm.engine import VllmEngine
from protocol.errors import ConfigError, ProofpoolError
from protocol.forward import CausalLM
from protocol.reasons import Outcome
from protocol.rules import SamplingRules
from tests.attacks.pools import tiny
from tests.unit.verifier.verifier_world import World
from tests.vllm.conftest import StartEngine
from tests.vllm.work import in_order, num_diverging, task_requests, task_rollouts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROMPT = 140
"""More than vLLM's block of 128 tokens, so that prefixes can be cached."""


@pytest.fixture(scope="module")
def world() -> World:
    """The testnet's pool under its measured limits, 64 rollouts a task."""
    torch.set_num_threads(1)
    return tiny().world


@pytest.fixture(scope="module")
def model(world: World) -> CausalLM:
    return world.model


def by_torch(folder: Path, requests: Sequence[Request], dtype: torch.dtype = torch.float32) -> list[Completion]:
    engine = TorchEngine(64, dtype)
    engine.load(folder)
    return list(generate(engine, requests))


def long_requests(num_groups: int, sampling: SamplingRules, num_tokens: int = PROMPT) -> list[Request]:
    """Groups of 4 with long prompts that share a beginning; only their length ends them."""
    prompts = [np.arange(5, 5 + num_tokens, dtype=np.int32) % 24 for _ in range(num_groups)]
    for number, prompt in enumerate(prompts):
        prompt[-1 - number :] = 3
    return [Request(bytes(32), i, prompts[i // 4], sampling, frozenset()) for i in range(4 * num_groups)]


class Watched:
    """Counts what vLLM's scheduler does: a test of caching must see that something was cached."""

    def __init__(self, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        scheduler = engine._llm.engine_core.engine_core.scheduler
        schedule, preempt = scheduler.schedule, scheduler._preempt_request

        def watched_schedule(*args: object, **kwargs: object) -> object:
            output = schedule(*args, **kwargs)
            for new in output.scheduled_new_reqs:
                self.seen["cached tokens"] += new.num_computed_tokens
                num_scheduled = output.num_scheduled_tokens[new.req_id]
                self.seen["partial prefills"] += new.num_computed_tokens + num_scheduled < len(new.prompt_token_ids)
            return output

        def watched_preempt(*args: object, **kwargs: object) -> object:
            self.seen["preemptions"] += 1
            return preempt(*args, **kwargs)

        monkeypatch.setattr(scheduler, "schedule", watched_schedule)
        monkeypatch.setattr(scheduler, "_preempt_request", watched_preempt)


@pytest.mark.parametrize(
    "sampling",
    [SamplingRules(max_new_tokens=32), SamplingRules(max_new_tokens=32, temperature=0.7, top_k=12, top_p=0.9)],
    ids=["plain", "temperature, top-k and top-p"],
)
def test_tokens_are_those_of_the_torch_engine(
    start_engine: StartEngine, world: World, model: CausalLM, sampling: SamplingRules
) -> None:
    engine = start_engine(max_batch=24)  # of 64: rows come and go
    engine.load(world.folder)
    requests = task_requests(world, 0, sampling)
    theirs, ours = list(generate(engine, requests)), by_torch(world.folder, requests)
    assert num_diverging(ours, theirs, model) <= 1
    assert {c.finish_reason for c in theirs} == {"stop", "length"} if sampling.temperature == 1 else True
    for one, other in zip(in_order(ours), in_order(theirs), strict=True):
        if one.output_tokens.tolist() == other.output_tokens.tolist():
            assert one.finish_reason == other.finish_reason
            np.testing.assert_allclose(one.output_logprobs, other.output_logprobs, atol=1e-3)
            torch.testing.assert_close(one.hidden_rows, other.hidden_rows, atol=2e-2, rtol=2e-2)


def test_other_seeds_give_other_tokens(start_engine: StartEngine, world: World) -> None:
    engine = start_engine()
    engine.load(world.folder)
    requests = task_requests(world, 0)
    others = [Request(bytes(32), r.sample, r.input_tokens, r.sampling, r.eos_ids) for r in requests]
    first, second, again = (in_order(list(generate(engine, asked))) for asked in (requests, others, requests))
    assert [c.output_tokens.tolist() for c in first] != [c.output_tokens.tolist() for c in second]
    assert [c.output_tokens.tolist() for c in first] == [c.output_tokens.tolist() for c in again]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_files_are_accepted_by_the_verifier(start_engine: StartEngine, dtype: str) -> None:
    world, engine = tiny(dtype).world, start_engine(dtype=dtype)
    engine.load(world.folder)
    for counter in range(3):
        finding = world.examine(task_rollouts(engine, world, counter), counter)
        assert [r.outcome for r in finding.evidence.checks if r.outcome != Outcome.ACCEPT] == []


def test_cached_prefixes_and_split_prompts_leave_no_trace(
    start_engine: StartEngine, world: World, model: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine(max_batch=8, max_step_tokens=48)
    engine.load(world.folder)
    watched = Watched(engine, monkeypatch)
    requests = long_requests(6, SamplingRules(max_new_tokens=60))
    theirs = list(generate(engine, requests))
    assert watched.seen["cached tokens"] >= 128 and watched.seen["partial prefills"] >= 2, watched.seen
    compare_whole(theirs, by_torch(world.folder, requests), model)


def test_preempted_rollouts_are_whole(
    start_engine: StartEngine, world: World, model: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine(max_batch=16, cache_gib=0.004)
    engine.load(world.folder)
    watched = Watched(engine, monkeypatch)
    requests = long_requests(4, SamplingRules(max_new_tokens=120), num_tokens=60)
    theirs = list(generate(engine, requests))
    assert watched.seen["preemptions"] >= 2, watched.seen
    compare_whole(theirs, by_torch(world.folder, requests), model)


def compare_whole(theirs: Sequence[Completion], ours: Sequence[Completion], model: CausalLM) -> None:
    """The same tokens, and a state for each that is the reference's for that token."""
    assert num_diverging(ours, theirs, model) <= 1
    for one, other in zip(in_order(ours), in_order(theirs), strict=True):
        assert len(other.hidden_rows) == len(other.output_tokens) == len(other.output_logprobs)
        if one.output_tokens.tolist() == other.output_tokens.tolist():
            torch.testing.assert_close(one.hidden_rows, other.hidden_rows, atol=2e-2, rtol=2e-2)


def test_requests_join_between_steps(start_engine: StartEngine, world: World) -> None:
    engine = start_engine(max_batch=8)
    engine.load(world.folder)
    requests = task_requests(world, 0)
    alone = in_order(list(generate(engine, requests)))
    finished: list[Completion] = []
    for request in requests:
        engine.add([request])
        finished += engine.step()
    while engine.has_work:
        finished += engine.step()
    assert [c.output_tokens.tolist() for c in in_order(finished)] == [c.output_tokens.tolist() for c in alone]


def test_what_waits_is_counted_and_what_is_aborted_is_gone(start_engine: StartEngine, world: World) -> None:
    engine = start_engine(max_batch=4)
    engine.load(world.folder)
    assert (engine.has_work, engine.num_waiting, engine.step()) == (False, 0, [])
    requests = task_requests(world, 0)[:16]
    engine.add(requests)
    engine.step()
    assert engine.has_work and engine.num_waiting >= 8
    with pytest.raises(ProofpoolError, match="has work"):
        engine.load(world.folder)
    engine.abort()
    assert (engine.has_work, engine.num_waiting) == (False, 0)
    assert len(list(generate(engine, requests))) == 16


def test_a_step_that_raises_leaves_an_engine_that_can_be_aborted(
    start_engine: StartEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine()
    engine.load(world.folder)
    requests = task_requests(world, 0)
    before = in_order(list(generate(engine, requests)))
    engine.add(requests)
    engine.step()
    with monkeypatch.context() as patched, pytest.raises(ProofpoolError, match="finite"):
        patched.setattr(desk, "draw", fail)
        engine.step()
    assert engine.has_work
    engine.abort()
    after = in_order(list(generate(engine, requests)))
    assert [c.output_tokens.tolist() for c in after] == [c.output_tokens.tolist() for c in before]


def fail(*args: object) -> None:
    raise ProofpoolError("the model's logits aren't finite")


def test_a_rollout_without_room_is_refused_and_none_is_added(start_engine: StartEngine, world: World) -> None:
    engine = start_engine(max_length=64)
    engine.load(world.folder)
    fits, longer = (long_requests(1, SamplingRules(max_new_tokens=20), num_tokens=n)[0] for n in (44, 45))
    with pytest.raises(ProofpoolError, match="longer than"):
        engine.add([fits, longer])
    assert not engine.has_work
    assert len(list(generate(engine, [fits]))) == 1


def test_without_weights_or_memory_it_says_so(start_engine: StartEngine, world: World) -> None:
    engine = start_engine(cache_gib=0.0001)
    with pytest.raises(ProofpoolError, match="no weights"):
        engine.add(task_requests(world, 0))
    with pytest.raises(ConfigError, match="can't run this model"):
        engine.load(world.folder)
