"""Lies that vLLM tells are caught as our engine's are, and its honest work passes, a rollout at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from protocol.reasons import Outcome
from tests.attacks.attack import Attack
from tests.attacks.pools import tiny
from tests.attacks.table import ATTACKS, CONTROLS
from tests.attacks.test_attacks import NO_ROOM, SLOW
from tests.attacks.trial import tried
from tests.vllm.arena import VllmArena, by_vllm
from tests.vllm.conftest import Engines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LIES = [attack for attack in ATTACKS if attack.generates and attack.name not in (*SLOW, "bfloat16")]
"""Those that need tokens of their own: other models, temperatures, seeds, prompts; all in the engine's precision."""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory, engines: Engines) -> Iterator[VllmArena]:
    torch.set_num_threads(1)
    engines.end()
    arena = by_vllm(tiny(num_tasks=2, num_groups=2), scratch=tmp_path_factory.mktemp("models"))
    yield arena
    arena.engine.close()


@pytest.mark.parametrize("name", ["honest", "honest-proved"])
def test_honest_work_passes(arena: VllmArena, name: str) -> None:
    (attack,) = [control for control in CONTROLS if control.name == name]
    trial = tried(arena, attack)
    assert trial.judge(trial.rollouts).outcome == Outcome.ACCEPT
    assert all(trial.judge([one]).outcome == Outcome.ACCEPT for one in trial.rollouts)


@pytest.mark.parametrize("attack", LIES, ids=lambda attack: attack.name)
def test_a_lie_is_caught_unless_it_is_close_to_the_truth(arena: VllmArena, attack: Attack) -> None:
    trial = tried(arena, attack)
    assert trial.altered or attack.close or attack.name in NO_ROOM
    caught = trial.judge(trial.rollouts).outcome != Outcome.ACCEPT
    assert caught or attack.close or not trial.altered
