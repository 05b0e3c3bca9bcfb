"""The sampler for vLLM's second model runner, with that runner's own types but without the runner: it needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from vllm import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext

from protocol.engines.base import Request
from protocol.engines.vllm.draws import Asked
from protocol.engines.vllm.sampler_v2 import SeededSlots
from protocol.rules import SamplingRules
from protocol.sampling import draw_tokens, noise_keys

pytestmark = pytest.mark.slow

VOCAB, HIDDEN, NUM_PROMPT = 40, 4, 5


def context(slots: list[int], positions: list[int]) -> LogitsContext:
    mapping, zeros = torch.tensor(slots), torch.zeros(len(slots), dtype=torch.int64)
    bound = np.array(positions) + 1
    return LogitsContext(mapping, mapping, np.array(slots), zeros, zeros, torch.tensor(positions), bound)


def params_of(key: str, sample: int) -> SamplingParams:
    request = Request(bytes(32), sample, np.arange(NUM_PROMPT, dtype=np.int32), SamplingRules(), frozenset())
    return SamplingParams(temperature=0.0, extra_args=Asked.to_extra_args(key, request))


@pytest.fixture
def sampler() -> SeededSlots:
    sampler = SeededSlots(None, None)
    assert sampler.add_request(3, params_of("a", 1)) and sampler.add_request(0, params_of("b", 2))
    assert not sampler.add_request(1, SamplingParams(temperature=0.0))
    return sampler


def step(sampler: SeededSlots, slots: list[int], positions: list[int], seed: int) -> torch.Tensor:
    logits = torch.randn(len(slots), VOCAB, generator=torch.Generator().manual_seed(seed))
    sampler.desk.states = torch.full((len(slots), HIDDEN), float(seed))
    return sampler.apply(logits.clone(), context(slots, positions))


def drawn(seed: int, row: int, num_rows: int, sample: int, position: int) -> int:
    logits = torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed))[row : row + 1]
    return int(draw_tokens(logits.numpy(), noise_keys(bytes(32), [sample], [position]), SamplingRules())[0][0])


def test_slots_and_positions_say_whose_draw_it_is(sampler: SeededSlots) -> None:
    first = step(sampler, [0, 1, 3], [4, 4, 2], seed=1)
    assert int(first[0].argmax()) == drawn(1, 0, 3, sample=2, position=0)
    second = step(sampler, [3, 0], [4, 5], seed=2)
    expected = [drawn(2, 0, 2, sample=1, position=0), drawn(2, 1, 2, sample=2, position=1)]
    assert second.argmax(dim=1).tolist() == expected
    a, b = (np.frombuffer(packed["tokens"], "<i8").tolist() for packed in sampler.desk.take(["a", "b"]))
    assert (a, b) == ([expected[0]], [int(first[0].argmax()), expected[1]])


def test_prompts_in_parts_and_what_is_computed_again_draw_nothing_new(sampler: SeededSlots) -> None:
    step(sampler, [3], [2], seed=1)
    token = int(step(sampler, [3], [4], seed=2)[0].argmax())
    step(sampler, [3], [4], seed=3)
    assert np.frombuffer(sampler.desk.take(["a"])[0]["tokens"], "<i8").tolist() == [token]


def test_a_slot_that_is_given_away_is_nobodys(sampler: SeededSlots) -> None:
    sampler.add_request(3, SamplingParams(temperature=0.0))
    step(sampler, [3], [4], seed=1)
    assert sampler.desk.take(["a"])[0]["tokens"] == b""
