"""Duplicates: the same completions again from one node; the same submission again isn't that."""

from dataclasses import replace

from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.wire import CheckResult
from tests.unit.verifier.verifier_world import World
from verifier.checks import duplicates


def check(world: World, rollouts: list[Rollout], twin: str | None = None) -> CheckResult:
    def find_twin(node: str, completions_hash: str, submission_id: str) -> str | None:
        return twin

    return duplicates.check(world.dossier(rollouts), find_twin, world.case(rollouts))


def test_new_work_passes(world: World, honest: list[Rollout]) -> None:
    assert check(world, honest).outcome == Outcome.ACCEPT


def test_work_that_was_accepted_before_is_dropped(world: World, honest: list[Rollout]) -> None:
    result = check(world, honest, twin="0x" + "01" * 32)
    assert (result.outcome, result.reason) == (Outcome.DROP, RejectReason.DUPLICATE)


def test_completions_have_one_name_whatever_is_said_about_them(world: World, honest: list[Rollout]) -> None:
    dressed_up = [replace(r, task_reward=1.0, problem_id="x", proofs=b"") for r in honest]
    reordered = honest[::-1]
    name = world.case(honest).completions_hash
    assert world.case(dressed_up, counter=8).completions_hash == name
    assert world.case(reordered).completions_hash != name
