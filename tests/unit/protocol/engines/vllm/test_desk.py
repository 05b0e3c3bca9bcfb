"""What is drawn from a step's rows: the torch engine's tokens, each kept once with the state that it came from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from protocol.engines.base import Request
from protocol.engines.vllm.desk import Desk
from protocol.engines.vllm.draws import Asked, Draws
from protocol.errors import ProofpoolError
from protocol.rules import SamplingRules
from protocol.sampling import draw_tokens, noise_keys

VOCAB, HIDDEN = 50, 8


def asked_of(
    key: str, sample: int = 0, *, seed: bytes = bytes(32), keeps_logits: bool = False, **rules: float
) -> Asked:
    request = Request(seed, sample, np.arange(4, dtype=np.int32), SamplingRules(**rules), frozenset({1}))
    asked = Asked.of(Asked.to_extra_args(key, request, keeps_logits=keeps_logits))
    assert asked is not None
    return asked


@pytest.fixture
def logits() -> torch.Tensor:
    return 3 * torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.states = torch.arange(5.0)[:, None].expand(5, HIDDEN)
    return desk


def tokens_of(desk: Desk, key: str) -> list[int]:
    return np.frombuffer(desk.take([key])[0]["tokens"], dtype="<i8").tolist()


def test_what_a_request_asks_for_survives_the_way_through_vllm() -> None:
    asked = asked_of("7", 3, seed=bytes(range(32)), temperature=0.5, top_k=4, keeps_logits=True)
    assert (asked.key, asked.sample, asked.seed, asked.num_prompt_tokens) == ("7", 3, bytes(range(32)), 4)
    assert (asked.sampling.temperature, asked.sampling.top_k, asked.keeps_logits) == (0.5, 4, True)


@pytest.mark.parametrize("extra_args", [None, {}, {"somebody": {"else": 1}}])
def test_a_request_of_somebody_else_asks_for_nothing(extra_args: dict | None) -> None:
    assert Asked.of(extra_args) is None


def test_each_row_is_drawn_by_its_own_seed_rules_and_position(desk: Desk, logits: torch.Tensor) -> None:
    asked = [asked_of("a", 1), asked_of("b", 2, temperature=0.3, top_k=3), asked_of("c", 1, seed=b"\1" * 32)]
    positions = [0, 0, 0]
    before = logits.clone()
    out = desk.draw(logits, [0, 2, 4], asked, positions)
    for row, one in zip((0, 2, 4), asked, strict=True):
        keys = noise_keys(one.seed, [one.sample], [0])
        tokens, logprobs = draw_tokens(before[row : row + 1].numpy(), keys, one.sampling)
        assert int(out[row].argmax()) == tokens[0]
        (packed,) = desk.take([one.key])
        assert np.frombuffer(packed["tokens"], "<i8").tolist() == tokens.tolist()
        assert np.frombuffer(packed["logprobs"], "<f4").tolist() == logprobs.tolist()
        rows = torch.frombuffer(bytearray(packed["rows"]), dtype=torch.bfloat16)
        assert rows.tolist() == [float(row)] * HIDDEN
    assert torch.equal(out[[1, 3]], before[[1, 3]]), "rows of others stay as they are"


def test_other_positions_draw_other_tokens(desk: Desk, logits: torch.Tensor) -> None:
    asked = asked_of("a")
    same = logits[:1].expand(5, VOCAB).clone()
    for position in range(5):
        desk.draw(same.clone(), [0], [asked], [position])
    assert len(set(tokens_of(desk, "a"))) > 1


def test_a_position_that_is_computed_again_keeps_its_first_draw(desk: Desk, logits: torch.Tensor) -> None:
    asked = asked_of("a")
    first = int(desk.draw(logits[:].clone(), [0], [asked], [0])[0].argmax())
    other = logits.flip(0)
    desk.draw(other.clone(), [0], [asked], [0])
    assert tokens_of(desk, "a") == [first]


def test_a_gap_is_an_error() -> None:
    draws = Draws(asked_of("a"))
    draws.put(0, 5, -1.0, torch.zeros(HIDDEN))
    with pytest.raises(ProofpoolError, match="skipped a position"):
        draws.put(2, 5, -1.0, torch.zeros(HIDDEN))


@pytest.mark.parametrize("states", [None, torch.zeros(4, HIDDEN)])
def test_states_of_another_step_are_an_error(desk: Desk, logits: torch.Tensor, states: torch.Tensor | None) -> None:
    desk.states = states
    with pytest.raises(ProofpoolError, match="states aren't those"):
        desk.draw(logits, [0], [asked_of("a")], [0])


def test_logits_that_are_no_numbers_are_an_error(desk: Desk, logits: torch.Tensor) -> None:
    logits[3, 7] = float("nan")
    desk.draw(logits, [0, 1], [asked_of("a"), asked_of("b")], [0, 0])
    with pytest.raises(ProofpoolError, match="finite"):
        desk.draw(logits, [3], [asked_of("c")], [0])


def test_what_was_taken_is_forgotten_and_nothing_is_empty(desk: Desk, logits: torch.Tensor) -> None:
    before = logits[2].clone()
    desk.draw(logits, [2], [asked_of("a", keeps_logits=True)], [0])
    (packed,) = desk.take(["a"])
    assert torch.equal(torch.frombuffer(bytearray(packed["logits"]), dtype=torch.float32), before)
    assert desk.take(["a"]) == [{"tokens": b"", "logprobs": b"", "rows": b"", "logits": b""}]
    assert torch.equal(desk.draw(logits, [], [], []), logits)
