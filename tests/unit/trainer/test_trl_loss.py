"""Our objective is TRL's GRPO loss on the same tokens where the options coincide, values and gradients.

TRL's answers lie in tests/data/trl_grpo_loss.json; `tests/bench/test_bench_trl_loss.py` asks TRL itself again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench.trl.cases import CASES, LENGTHS, MAX_NEW_TOKENS, make_rows
from trainer.loss import ObjectiveConfig, TokenRows, token_shares, token_values

ANSWERS: dict[str, dict[str, Any]] = {
    answer["name"]: answer
    for answer in json.loads((Path(__file__).parents[2] / "data" / "trl_grpo_loss.json").read_text())["cases"]
}


def ours(objective: dict[str, Any]) -> dict[str, Any]:
    columns, advantages = make_rows()
    for name in ("logprobs", "entropy"):
        columns[name].requires_grad_()
    config, lengths = ObjectiveConfig.model_validate(objective), torch.tensor(LENGTHS)
    rows = TokenRows(**columns, advantages=advantages.repeat_interleave(lengths))
    shares = torch.tensor(token_shares(LENGTHS, config.normalisation, MAX_NEW_TOKENS), dtype=torch.float64)
    loss = -(token_values(rows, config) * shares.repeat_interleave(lengths)).sum()
    loss.backward()
    gradients = {name: columns[name].grad for name in ("logprobs", "entropy")}
    found = {name: [] if gradient is None else gradient.tolist() for name, gradient in gradients.items()}
    return {"loss": float(loss.detach())} | found


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-6, rel=1e-6)
    assert found["logprobs"] == pytest.approx(expected["logprobs"], abs=1e-6, rel=1e-6)
    if expected["entropy"]:
        assert found["entropy"] == pytest.approx(expected["entropy"], abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_loss_and_gradients_are_trls(case: dict[str, Any]) -> None:
    assert_same(ours(case["objective"]), ANSWERS[case["name"]])


def test_no_two_options_say_the_same() -> None:
    losses = [answer["loss"] for answer in ANSWERS.values()]
    assert len(ANSWERS) == len(CASES)
    assert min(abs(a - b) for i, a in enumerate(losses) for b in losses[:i]) > 1e-5
    with pytest.raises(AssertionError):
        assert_same(ours(CASES[0]["objective"]), ANSWERS[CASES[1]["name"]])
