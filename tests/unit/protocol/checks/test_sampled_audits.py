"""Audits of a part: what is drawn is looked at, suspicion looks at everything, and the cheap checks always do."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from protocol.checks.audit_rows import Audit
from protocol.checks.prefill import measure
from protocol.checks.stages import Examination, narrowed, run_checks
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import AuditRules, Limit, Thresholds
from protocol.stamp import StampPair
from tests.unit.verifier.verifier_world import World

DRAWN = (3, 8, 20)


@pytest.fixture
def examine(world: World) -> Callable[..., Examination]:
    """The examination of rows of which three rollouts are drawn."""

    def run(rollouts: list[Rollout], thresholds: Thresholds | None = None, **audit: object) -> Examination:
        changes = {
            "audit": AuditRules.model_validate({"policy": "sampled", **audit}),
            "thresholds": thresholds or world.rules.thresholds,
        }
        rules = world.rules.model_copy(update=changes)
        return run_checks(world.case(rollouts, rules=rules), lambda: world.model, plan=lambda case: Audit(DRAWN))

    return run


def with_false_logprobs(rollouts: list[Rollout], number: int) -> list[Rollout]:
    false = replace(rollouts[number], output_logprobs=rollouts[number].output_logprobs - np.float32(2))
    return [*rollouts[:number], false, *rollouts[number + 1 :]]


def num_tokens(found: Examination) -> int:
    return next(result.num_audited for result in found.results if result.check == "logprobs")


def test_only_what_is_drawn_goes_through_the_model(honest: list[Rollout], examine: Callable[..., Examination]) -> None:
    found = examine(honest)
    assert {result.outcome for result in found.results} == {Outcome.ACCEPT}
    assert (found.num_audited, found.num_rollouts) == (3, len(honest))
    assert num_tokens(found) == sum(honest[number].num_units for number in DRAWN)


def test_a_cheat_that_isnt_drawn_is_missed(honest: list[Rollout], examine: Callable[..., Examination]) -> None:
    found = examine(with_false_logprobs(honest, 4))
    assert found.num_audited == 3 and max(result.outcome for result in found.results) == Outcome.ACCEPT


def test_one_suspicious_rollout_has_all_of_them_audited(
    honest: list[Rollout], examine: Callable[..., Examination]
) -> None:
    found = examine(with_false_logprobs(honest, 8))
    assert found.num_audited == len(honest) and num_tokens(found) == sum(r.num_units for r in honest)
    assert max(found.results, key=lambda r: r.outcome).reason == RejectReason.LOGPROB_MISMATCH


def test_without_escalation_the_verdict_is_about_the_drawn_ones(
    honest: list[Rollout], examine: Callable[..., Examination]
) -> None:
    found = examine(with_false_logprobs(honest, 8), escalating=False)
    assert found.num_audited == 3 and max(result.outcome for result in found.results) == Outcome.DROP


@pytest.mark.parametrize(("nats", "num_audited"), [(0.005, 3), (0.05, 32)])
def test_a_little_wrong_everywhere_isnt_hidden_by_the_room_of_a_few(
    world: World, honest: list[Rollout], examine: Callable[..., Examination], nats: float, num_audited: int
) -> None:
    """0.05 nats are within the limit for three rollouts, 0.1 or more, and beyond that for all of them, 0.03."""
    limits = world.rules.thresholds.model_copy(update={"logprob_error_mean": Limit(reject=0, spread=1)})
    shifted = [replace(r, output_logprobs=r.output_logprobs - np.float32(nats)) for r in honest]
    found = examine(shifted, thresholds=limits)
    assert found.num_audited == num_audited
    expected = Outcome.ACCEPT if num_audited == 3 else Outcome.DROP
    assert max(result.outcome for result in found.results) == expected


def test_cheap_checks_look_at_what_isnt_drawn(honest: list[Rollout], examine: Callable[..., Examination]) -> None:
    honest[0] = replace(honest[0], task_reward=1 - honest[0].task_reward)
    found = examine(honest)
    assert (found.num_audited, found.results[-1].reason) == (0, RejectReason.REWARD_MISMATCH)


def test_a_part_is_measured_like_the_whole(world: World, honest: list[Rollout]) -> None:
    case = world.case(honest)
    whole, part = measure(case, world.model), measure(case, world.model, DRAWN)
    assert part.rollouts == DRAWN
    ends = np.cumsum([r.num_units for r in honest])
    rows = np.concatenate([np.arange(ends[n] - honest[n].num_units, ends[n]) for n in DRAWN])
    np.testing.assert_allclose(part.logprobs, whole.logprobs[rows], atol=1e-4)
    assert {c.rollout for c in part.chunks} == set(DRAWN)
    assert part.place(honest[3].num_units) == (8, 0) and whole.place(0) == (0, 0)


def test_escalated_measurements_are_in_the_tasks_order(world: World, honest: list[Rollout]) -> None:
    case = world.case(honest)
    whole, rest = measure(case, world.model), [n for n in range(len(honest)) if n not in DRAWN]
    joined = type(whole).joined([measure(case, world.model, DRAWN), measure(case, world.model, rest)])
    assert joined.rollouts == whole.rollouts and joined.lengths == whole.lengths
    np.testing.assert_allclose(joined.logprobs, whole.logprobs, atol=1e-4)
    assert [(c.rollout, c.chunk) for c in joined.chunks] == [(c.rollout, c.chunk) for c in whole.chunks]


def test_log_probs_of_other_tokens_come_with_the_same_pass(world: World, honest: list[Rollout]) -> None:
    claimed = int(honest[8].output_tokens[2])
    pairs = [StampPair(8, 2, claimed), StampPair(3, 0, 7), StampPair(8, 2, 9), StampPair(8, 2, claimed)]
    found = measure(world.case(honest), world.model, DRAWN, pairs, max_slice_tokens=60)
    whole = measure(world.case(honest), world.model)
    index = sum(r.num_units for r in honest[:8]) + 2
    assert found.asked[0] == found.asked[3] == pytest.approx(whole.logprobs[index], abs=1e-4)
    assert (found.asked < 1e-3).all() and found.asked[2] != found.asked[0]


@pytest.mark.parametrize(("wrong", "escalating"), [(None, True), (8, True), (8, False), (4, True)])
def test_an_audit_of_all_narrowed_to_a_draw_says_what_that_draws_audit_says(
    world: World,
    honest: list[Rollout],
    examine: Callable[..., Examination],
    wrong: int | None,
    escalating: bool,
) -> None:
    rows = honest if wrong is None else with_false_logprobs(honest, wrong)
    drawn = examine(rows, escalating=escalating)
    rules = world.rules.model_copy(update={"audit": AuditRules(policy="sampled", escalating=escalating)})
    whole = run_checks(world.case(rows, rules=rules), lambda: world.model)
    again = narrowed(whole, DRAWN)
    assert again.num_audited == drawn.num_audited
    for one, other in zip(again.results, drawn.results, strict=True):
        assert (one.check, one.outcome, one.num_audited) == (other.check, other.outcome, other.num_audited)
        assert one.value == pytest.approx(other.value, abs=1e-4)
    assert narrowed(whole, range(len(honest))) is whole


def test_where_the_cheap_checks_decide_there_is_nothing_to_narrow(world: World, honest: list[Rollout]) -> None:
    honest[0] = replace(honest[0], task_reward=1 - honest[0].task_reward)
    whole = run_checks(world.case(honest), lambda: world.model)
    assert narrowed(whole, DRAWN) is whole
