"""Every lie is caught, but for those that are physically close to honest work; honest work isn't.

The quick half plays each attack on one task of the testnet's model; the slow one asserts the published rates.
"""

from __future__ import annotations

import pytest
import torch

from protocol.checks.stages import worst
from protocol.reasons import Outcome
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack
from tests.attacks.document import play
from tests.attacks.matrix import Effort
from tests.attacks.pools import tiny
from tests.attacks.report import PAGE, renewed
from tests.attacks.table import ATTACKS, CONTROLS
from tests.attacks.trial import tried
from verifier.pipeline import examine

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


AS_THE_PIPELINE = ("honest", "other-seed", "wrong-seed", "proof-negated", "false-reward", "truncated", "replayed")


@pytest.mark.parametrize("name", AS_THE_PIPELINE)
def test_a_trial_says_what_the_pipeline_says(arena: Arena, name: str) -> None:
    """Readings that are kept apart from claims, and put together again, change nothing."""
    attack = next(attack for attack in (*CONTROLS, *ATTACKS) if attack.name == name)
    trial, dossier = tried(arena, attack, [0]), attack.dossier(arena, 0)
    finding = examine(dossier, arena.world.instruments(find_twin=attack.find_twin(arena)))
    ours, theirs = trial.judge(trial.rollouts), worst(finding.evidence.checks)
    assert (ours.outcome, ours.reason) == (theirs.outcome, theirs.reason)
    assert ours.outcome == Outcome.ACCEPT or ours.check == theirs.check


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_matrix() -> None:
    """Every lie per file, unless it is close to honest work; honest work never, not even a rollout by itself."""
    torch.set_num_threads(1)
    lines = {line.attack: line for line in play(tiny(), (*CONTROLS, *ATTACKS), Effort(20, 3, 20), print).lines}
    for control in CONTROLS:
        line = lines[control.name]
        assert (line.rollouts.share, line.submissions.share) == (0.0, 0.0), line
    for attack in ATTACKS:
        line = lines[attack.name]
        assert line.num_altered or attack.close, line
        assert line.submissions.share == 1.0 or attack.close, line


def test_the_pages_tables_are_those_of_the_kept_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page, "run `python -m tests.attacks --tables`"
