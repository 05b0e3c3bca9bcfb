"""Termination: in EOS or at the limit, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from protocol.checks import termination
from protocol.checks.measurements import Measurements
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from protocol.sampling_rows import RowStatistics
from tests.unit.verifier.verifier_world import World

EOS, DIGIT, LIMIT = 1, 15, 40


def rollout(honest: Rollout, tokens: list[int], finish_reason: str) -> Rollout:
    return replace(
        honest,
        output_tokens=np.array(tokens, dtype=np.int32),
        output_logprobs=np.zeros(len(tokens), dtype=np.float32),
        finish_reason=finish_reason,
    )


@pytest.mark.parametrize(
    ("tokens", "finish_reason", "passes"),
    [
        ([DIGIT, EOS], "stop", True),
        ([EOS], "stop", True),
        ([DIGIT] * LIMIT, "length", True),
        ([DIGIT] * (LIMIT - 1) + [EOS], "stop", True),
        ([DIGIT, DIGIT], "stop", False),
        ([DIGIT] * 7, "length", False),
        ([DIGIT, EOS, DIGIT, EOS], "stop", False),
        ([EOS] + [DIGIT] * (LIMIT - 1), "length", False),
        ([DIGIT] * (LIMIT - 1) + [EOS], "length", False),
    ],
)
def test_where_a_completion_may_end(
    world: World, honest: list[Rollout], tokens: list[int], finish_reason: str, passes: bool
) -> None:
    rows = [*honest[:-1], rollout(honest[-1], tokens, finish_reason)]
    result = termination.check(world.case(rows))
    expected = (Outcome.ACCEPT, None) if passes else (Outcome.DROP, RejectReason.TERMINATION_INVALID)
    assert (result.outcome, result.reason) == expected


def test_a_truncated_completion_is_dropped(world: World, honest: list[Rollout]) -> None:
    assert honest[0].finish_reason == "stop"
    cut = replace(honest[0], output_tokens=honest[0].output_tokens[:-1], output_logprobs=honest[0].output_logprobs[:-1])
    result = termination.check(world.case([cut, *honest[1:]]))
    assert result.reason == RejectReason.TERMINATION_INVALID


def measured(rollouts: list[Rollout], eos_probability: float) -> Measurements:
    """A pass that gave every token the same P(EOS)."""
    lengths = tuple(rollout.num_units for rollout in rollouts)
    rows = replace(RowStatistics.empty(sum(lengths)), eos_probabilities=np.full(sum(lengths), eos_probability))
    return Measurements(tuple(range(len(rollouts))), lengths, rows, (), np.empty(0))


@pytest.mark.parametrize(
    ("probability", "bound_to_seed", "outcome"),
    [
        (0.02, True, Outcome.ACCEPT),
        (0.02, False, Outcome.DROP),
        (0.1, False, Outcome.ACCEPT),
    ],
)
def test_an_unlikely_eos_is_refused_only_where_sampling_is_free(
    world: World, honest: list[Rollout], probability: float, bound_to_seed: bool, outcome: Outcome
) -> None:
    sampling = SamplingRules(max_new_tokens=LIMIT, bound_to_seed=bound_to_seed)
    rules = world.rules.model_copy(update={"sampling": sampling})
    case = replace(world.case(honest, rules=rules), measurements=measured(honest, probability))
    assert termination.check_eos(case).outcome == outcome
