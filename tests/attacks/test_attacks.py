"""Every lie is caught, but for those that are physically close to honest work; honest work isn't.

The quick half plays each attack on one task of the testnet's model; the slow one asserts the published rates.
"""

from __future__ import annotations

import pytest
import torch

from protocol.reasons import Outcome
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack
from tests.attacks.pools import tiny
from tests.attacks.report import PAGE, renewed
from tests.attacks.table import ATTACKS, CONTROLS
from tests.attacks.trial import tried

SLOW = ("bomb-rows", "bomb-tokens", "honest-batch-1", "branches-0.1", "branches-1e-3")
"""Seconds each: played with the whole matrix only."""

NO_ROOM = ("branches-0.1", "branches-1e-3", "tenth-temperature-0.9")
"""Lies that so few rollouts may give no occasion for."""


def quick(attacks: tuple[Attack, ...]) -> pytest.MarkDecorator:
    chosen = [attack for attack in attacks if attack.name not in SLOW]
    return pytest.mark.parametrize("attack", chosen, ids=lambda attack: attack.name)


@pytest.fixture(scope="module")
def arena() -> Arena:
    """Two tasks of 16 rollouts."""
    torch.set_num_threads(1)
    return tiny(num_tasks=2, num_groups=2)


@quick(CONTROLS)
def test_honest_work_passes(arena: Arena, attack: Attack) -> None:
    trial = tried(arena, attack)
    assert trial.judge(trial.rollouts).outcome == Outcome.ACCEPT
    assert all(trial.judge([one]).outcome == Outcome.ACCEPT for one in trial.rollouts)


@quick(ATTACKS)
def test_a_lie_is_caught_unless_it_is_close_to_the_truth(arena: Arena, attack: Attack) -> None:
    trial = tried(arena, attack)
    assert trial.altered or attack.close or attack.name in NO_ROOM
    caught = trial.judge(trial.rollouts).outcome != Outcome.ACCEPT
    assert caught or attack.close or not trial.altered


def test_the_pages_tables_are_those_of_the_kept_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page, "run `python -m tests.attacks --tables`"
