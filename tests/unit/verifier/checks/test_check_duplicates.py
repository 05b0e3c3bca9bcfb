"""Duplicates: the same completions again from one node; the same submission again isn't that."""

from dataclasses import replace

from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from tests.unit.verifier.verifier_world import World
from verifier.case import Case, open_case
from verifier.checks import duplicates


def case_of(world: World, rollouts: list[Rollout], counter: int = 0, twin: str | None = None) -> Case:
    instruments = world.instruments(find_twin=lambda node, completions_hash, submission_id: twin)
    return open_case(world.dossier(rollouts, counter), instruments)


def test_new_work_passes(world: World, honest: list[Rollout]) -> None:
    assert duplicates.check(case_of(world, honest)).outcome == Outcome.ACCEPT


def test_work_that_was_accepted_before_is_dropped(world: World, honest: list[Rollout]) -> None:
    result = duplicates.check(case_of(world, honest, twin="0x" + "01" * 32))
    assert (result.outcome, result.reason) == (Outcome.DROP, RejectReason.DUPLICATE)


def test_completions_have_one_name_whatever_is_said_about_them(world: World, honest: list[Rollout]) -> None:
    dressed_up = [replace(r, task_reward=1.0, problem_id="x", proofs=b"") for r in honest]
    reordered = honest[::-1]
    name = case_of(world, honest).completions_hash
    assert case_of(world, dressed_up, counter=8).completions_hash == name
    assert case_of(world, reordered).completions_hash != name
