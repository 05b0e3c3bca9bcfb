"""A seat's stamp and its reviews, with the real model: what agrees, what doesn't, and where there is nothing to say."""

from dataclasses import replace
from typing import Any

from protocol.checks.prefill import measure
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import AuditRules
from protocol.stamp import MIN_LOGPROB
from protocol.wire import Evidence, StampReview, Verdict
from tests.unit.verifier.verifier_world import World
from verifier.judge import stamped
from verifier.pipeline import Finding, examine
from verifier.stamps import Revealed, StampSeat, audit_for, reviews_of

BEACON = "0x" + "be" * 32
OWN, EARLIER = (StampSeat(BEACON, "0x" + "5b" * 32, number, 3 + number) for number in (1, 0))


def judged(world: World, rollouts: list[Rollout], *seats: StampSeat) -> Finding:
    return examine(world.dossier(rollouts), world.instruments(), lambda case: audit_for(seats, case))


def verdict_of(finding: Finding, seat: StampSeat, **changes: Any) -> Revealed:
    """What `seat` reveals, having found this."""
    evidence = stamped(finding, seat, []).evidence.model_copy(update=changes)
    verdict = Verdict(
        submission_id=seat.submission_id,
        pool_id=1,
        epoch=0,
        round=seat.round,
        seat=seat.seat,
        outcome=finding.outcome,
        reason=finding.reason.code if finding.reason else 0,
        rules_hash=BEACON,
        evidence_hash=BEACON,
    )
    return Revealed(seat, verdict, evidence)


def reviews(world: World, rollouts: list[Rollout], revealed: Revealed) -> tuple[StampReview, ...]:
    """What OWN says of it."""
    evidence: Evidence = stamped(judged(world, rollouts, OWN, revealed.seat), OWN, [revealed]).evidence
    return evidence.stamp_reviews


def test_an_honest_stamp_agrees_wherever_it_was_made(world: World, honest: list[Rollout]) -> None:
    earlier = verdict_of(judged(world, honest, EARLIER), EARLIER)
    assert len(earlier.evidence.work_stamp) == 16
    assert all(MIN_LOGPROB <= answer < 0 for answer in earlier.evidence.work_stamp)
    (review,) = reviews(world, honest, earlier)
    assert (review.round, review.seat, review.agrees) == (0, 3, True)
    assert review.largest_difference is not None and review.largest_difference < 0.001


def test_another_seats_stamp_another_models_and_a_shifted_one_are_disputed(
    world: World, honest: list[Rollout], other_model: Any
) -> None:
    earlier = verdict_of(judged(world, honest, EARLIER), EARLIER)
    own = stamped(judged(world, honest, OWN), OWN, []).evidence.work_stamp
    other = examine(
        world.dossier(honest),
        world.instruments(load_model=lambda: other_model),
        lambda case: audit_for([EARLIER], case),
    )
    nearly = list(earlier.evidence.work_stamp)
    nearly[5] -= 0.2
    for stamp in (own, stamped(other, EARLIER, []).evidence.work_stamp, tuple(nearly)):
        lie = replace(earlier, evidence=earlier.evidence.model_copy(update={"work_stamp": stamp}))
        (review,) = reviews(world, honest, lie)
        assert not review.agrees and review.largest_difference is not None and review.largest_difference > 0.1


def test_a_stamp_that_is_missing_is_disputed_where_one_is_due(world: World, honest: list[Rollout]) -> None:
    (review,) = reviews(world, honest, verdict_of(judged(world, honest, EARLIER), EARLIER, work_stamp=()))
    assert (review.agrees, review.largest_difference) == (False, None)


def test_where_the_cheap_checks_decide_no_stamp_is_due(world: World, honest: list[Rollout]) -> None:
    false_rewards = [replace(rollout, task_reward=1.0 - rollout.task_reward) for rollout in honest]
    earlier = verdict_of(judged(world, false_rewards, EARLIER), EARLIER)
    assert earlier.evidence.work_stamp == () and earlier.verdict.outcome == Outcome.SLASH
    assert [review.agrees for review in reviews(world, false_rewards, earlier)] == [True]
    invented = replace(earlier, evidence=earlier.evidence.model_copy(update={"work_stamp": (-1.0,) * 16}))
    assert [review.agrees for review in reviews(world, false_rewards, invented)] == [False]


def test_a_file_that_nobody_can_read_has_no_stamp(world: World, honest: list[Rollout]) -> None:
    dossier = replace(world.dossier(honest), file=b"PAR1 no parquet")
    finding = stamped(examine(dossier, world.instruments(), lambda case: audit_for([OWN], case)), OWN, [])
    assert finding.reason is RejectReason.SCHEMA_INVALID and finding.evidence.work_stamp == ()


def test_of_a_refusal_by_memory_nothing_is_said(world: World, honest: list[Rollout]) -> None:
    """Whoever saw the same completions before stops there; another verifier can't know."""
    earlier = verdict_of(judged(world, honest, EARLIER), EARLIER, work_stamp=())
    duplicate = earlier.verdict.model_copy(update={"outcome": int(Outcome.DROP), "reason": RejectReason.DUPLICATE.code})
    assert reviews(world, honest, replace(earlier, verdict=duplicate)) == ()
    assert list(reviews_of([earlier], [()], RejectReason.DUPLICATE)) == []


def test_sampled_audits_ask_rows_of_their_own_round_and_answer_the_others_too(
    world: World, honest: list[Rollout]
) -> None:
    rules = world.rules.model_copy(update={"audit": AuditRules(policy="sampled", share=0.1, min_rollouts=2)})
    sampled = replace(world, rules=rules)
    earlier = verdict_of(judged(sampled, honest, EARLIER), EARLIER)
    case = judged(sampled, honest, OWN).case
    assert case is not None
    assert {pair.rollout for pair in EARLIER.challenge(case)} <= set(EARLIER.rollouts(case))
    assert len(EARLIER.rollouts(case)) == 4 and EARLIER.rollouts(case) != OWN.rollouts(case)
    (review,) = reviews(sampled, honest, earlier)
    assert review.agrees


def test_a_re_audit_is_about_the_same_whoever_has_revealed(world: World, honest: list[Rollout]) -> None:
    rules = world.rules.model_copy(update={"audit": AuditRules(policy="sampled", share=0.3)})
    case, colleague = world.case(honest, rules=rules), replace(EARLIER, seat=9)
    of_one, of_both = (audit_for(seats, case) for seats in ([OWN, EARLIER], [OWN, EARLIER, colleague]))
    assert of_one.rollouts == of_both.rollouts == tuple(sorted({*OWN.rollouts(case), *EARLIER.rollouts(case)}))


def test_no_temperature_makes_a_stamp_that_can_be_guessed(world: World, honest: list[Rollout]) -> None:
    """The file is an honest one at temperature 1; only what the seat answers is looked at."""
    answers = []
    for temperature in (0.01, 1.0, 100.0):
        sampling = world.rules.sampling.model_copy(update={"temperature": temperature})
        case = world.case(honest, rules=world.rules.model_copy(update={"sampling": sampling}))
        answers.append(measure(case, world.model, asked=OWN.challenge(case)).asked)
    assert len(set(answers[0].round(1))) > 8 and answers[0].min() > MIN_LOGPROB
    assert (answers[0] == answers[1]).all() and (answers[1] == answers[2]).all()
