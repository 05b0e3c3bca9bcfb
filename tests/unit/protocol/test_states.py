"""States of completions: one row an output token, each equal to that of the rollout alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.states import distinct, sampled_states
from tests.unit.verifier.verifier_world import World


def states_alone(model: CausalLM, rollout: Rollout) -> torch.Tensor:
    tokens = torch.from_numpy(np.concatenate([rollout.input_tokens, rollout.output_tokens[:-1]])).long()
    hidden: torch.Tensor = model(tokens, [len(tokens)])
    return hidden[len(rollout.input_tokens) - 1 :]


@pytest.mark.parametrize("picked", [slice(None), slice(5, 6), slice(None, None, -3)])
@torch.inference_mode()
def test_each_rollout_has_the_states_it_has_alone(world: World, honest: list[Rollout], picked: slice) -> None:
    rollouts = honest[picked]
    found = sampled_states(world.model, rollouts).split([rollout.num_units for rollout in rollouts])
    for rollout, states in zip(rollouts, found, strict=True):
        torch.testing.assert_close(states, states_alone(world.model, rollout), atol=2e-5, rtol=2e-5)


@torch.inference_mode()
def test_completions_of_one_token_have_their_prompts_last_state(world: World, honest: list[Rollout]) -> None:
    short = [replace(rollout, output_tokens=rollout.output_tokens[:1]) for rollout in honest[:3]]
    alone = torch.cat([states_alone(world.model, rollout) for rollout in short])
    torch.testing.assert_close(sampled_states(world.model, short), alone, atol=2e-5, rtol=2e-5)


def test_equal_prompts_have_one_place() -> None:
    first, second = (np.array(tokens, dtype=np.int32) for tokens in ([1, 2], [1]))
    prompts, places = distinct([first, second, first.copy()])
    assert [prompt.tolist() for prompt in prompts] == [[1, 2], [1]]
    assert places == [0, 1, 0]
