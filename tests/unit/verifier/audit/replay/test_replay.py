"""Which rollouts a verdict is held against, what is asked of them, and what of its evidence is false beyond doubt."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import AuditRules
from protocol.wire import Evidence, StampReview, Verdict
from tests.unit.verifier.audit.replay.test_comparison import check, compared
from tests.unit.verifier.verifier_world import BASE_MODEL, World
from verifier.audit.replay.comparison import NEAR_SHARE, ReplayedVerdict
from verifier.audit.replay.replay import _everything, _remedy, _replayed
from verifier.calibration.reference import ReferenceModel
from verifier.judge import stamped
from verifier.pipeline import Finding, examine, run
from verifier.stamps import Revealed, StampSeat, audit_for

BEACON = "0x" + "be" * 32
VALIDATOR = "0x" + "aa" * 20


@pytest.fixture
def sampled(world: World) -> World:
    """A pool whose seats look at four rollouts of 32, drawn by their round's beacon."""
    rules = world.rules.model_copy(update={"audit": AuditRules(policy="sampled", share=0.1)})
    return replace(world, rules=rules)


def seat_of(world: World, rollouts: list[Rollout], round_number: int = 0, seat: int = 3) -> StampSeat:
    return StampSeat(BEACON, world.dossier(rollouts).submission_id, round_number, seat)


def judged(world: World, rollouts: list[Rollout], seats: list[StampSeat], earlier: list[Revealed]) -> Finding:
    """What the first of these seats finds."""
    finding = examine(world.dossier(rollouts), world.instruments(), partial(audit_for, seats))
    return stamped(finding, seats[0], earlier)


def revealed(seat: StampSeat, finding: Finding, **changes: Any) -> Revealed:
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
    return Revealed(seat, verdict, Evidence(**(finding.evidence.model_dump() | changes)))


def replayed(world: World, rollouts: list[Rollout], *verdicts: Revealed) -> list[ReplayedVerdict]:
    seats, dossier = [one.seat for one in verdicts], world.dossier(rollouts)
    found = run(dossier, world.instruments(), partial(_everything, seats))
    shown = [SimpleNamespace(message=one.verdict) for one in verdicts]
    pairs = zip(shown, verdicts, strict=True)
    bundle: Any = SimpleNamespace(
        verdicts=[
            SimpleNamespace(validator=VALIDATOR, verdict=verdict, evidence=one.evidence) for verdict, one in pairs
        ]
    )
    return list(_replayed(bundle, dossier, found, seats, lambda twin_id: found, {}))


def test_a_verdict_is_held_against_what_its_draw_names(sampled: World, honest: list[Rollout]) -> None:
    seat = seat_of(sampled, honest)
    (found,) = replayed(sampled, honest, revealed(seat, judged(sampled, honest, [seat], [])))
    assert found.holds and (found.agreement, found.stamp) == ("agrees", "holds")
    assert found.num_audited == found.num_audited_here == 4


def test_a_re_audit_is_held_against_both_rounds_rollouts_and_its_reviews(sampled: World, honest: list[Rollout]) -> None:
    first, second = (seat_of(sampled, honest, number, 3 + number) for number in (0, 1))
    earlier = revealed(first, judged(sampled, honest, [first], []))
    later = revealed(second, judged(sampled, honest, [second, first], [earlier]))
    found = replayed(sampled, honest, earlier, later)
    assert [one.faults for one in found] == [(), ()]
    assert found[1].num_audited_here == found[1].num_audited > 4
    slander = StampReview(round=0, seat=3, agrees=False, largest_difference=4.0)
    lie = revealed(second, judged(sampled, honest, [second, first], [earlier]), stamp_reviews=[slander])
    assert replayed(sampled, honest, earlier, lie)[1].faults == (
        "reviews the stamp of seat 3 in round 0 falsely: it holds",
    )


def test_a_cheat_that_wasnt_drawn_contradicts_nobody(sampled: World, honest: list[Rollout]) -> None:
    """Though the whole file is refused."""
    for number in range(32):
        rows = with_false_logprobs(honest, number)
        seat = seat_of(sampled, rows)
        if number not in seat.rollouts(sampled.case(rows)):
            break
    finding = judged(sampled, rows, [seat], [])
    assert finding.outcome is Outcome.ACCEPT
    (found,) = replayed(sampled, rows, revealed(seat, finding))
    assert found.holds


def test_who_looked_away_from_suspicion_is_contradicted(sampled: World, honest: list[Rollout]) -> None:
    rows = with_false_logprobs(honest, *range(32))
    seat = seat_of(sampled, rows)
    accepted = revealed(seat_of(sampled, rows), judged(sampled, honest, [seat], []))
    (found,) = replayed(sampled, rows, accepted)
    assert (found.agreement, found.reason_here) == ("contradicted", RejectReason.LOGPROB_MISMATCH.value)
    assert found.num_audited_here == 32


def test_what_file_and_rules_say_is_exact(world: World, honest: list[Rollout]) -> None:
    seat = seat_of(world, honest)
    lie = {"num_units": 3, "num_rollouts": 4, "num_audited": 5, "seed": BEACON, "submission_id": BEACON}
    (found,) = replayed(world, honest, revealed(seat, judged(world, honest, [seat], []), **lie))
    units = sum(rollout.num_units for rollout in honest)
    assert f"num_units 3, the file has {units}" in found.faults
    assert "num_rollouts 4, the file has 32" in found.faults
    assert "accepted with 5 rollouts audited, its draw asks for 32" in found.faults
    assert sum("seed" in fault or "submission" in fault for fault in found.faults) == 2


def test_a_cheap_refusal_agrees_without_a_model_and_without_a_stamp(world: World, honest: list[Rollout]) -> None:
    false_rewards = [replace(rollout, task_reward=1 - rollout.task_reward) for rollout in honest]
    seat = seat_of(world, false_rewards)
    (found,) = replayed(world, false_rewards, revealed(seat, judged(world, false_rewards, [seat], [])))
    assert found.holds and (found.outcome, found.reason) == ("slash", "reward_mismatch")
    assert (found.stamp, found.num_audited_here) == ("none due", 0)


@pytest.mark.parametrize("is_forged", [False, True])
def test_a_verdict_by_other_kernels_is_no_lie(
    world: World, honest: list[Rollout], other_folder: Path, is_forged: bool
) -> None:
    """transformers' own forward pass in place of ours, over honest work and over another model's."""
    rows = world.rollouts(world.completions(folder=other_folder)) if is_forged else honest
    seat = seat_of(world, rows)
    theirs: Any = ReferenceModel(BASE_MODEL, "float32", "eager")
    finding = examine(
        world.dossier(rows), world.instruments(load_model=lambda: theirs), lambda case: audit_for([seat], case)
    )
    (found,) = replayed(world, rows, revealed(seat, stamped(finding, seat, [])))
    assert found.holds and found.outcome == ("slash" if is_forged else "accept")
    assert found.stamp_difference is not None and found.stamp_difference <= 0.0002
    for one in found.checks:
        limit = one.here.reject_threshold if one.here else None
        assert one.difference is None or abs(one.difference) <= max(2e-4, NEAR_SHARE * (limit or 0)), one


def accepted(seat: int) -> ReplayedVerdict:
    return compared([check()], [check()]).model_copy(update={"seat": seat})


@pytest.mark.parametrize(
    ("here", "said", "case", "remedy"),
    [
        ("slash", "accept", None, "challenge"),
        ("slash", "accept", "accused", None),
        ("slash", "drop", None, None),
        ("accept", "accept", None, None),
        ("accept", "slash", None, "appeal"),
        ("accept", "slash", "accused", "appeal"),
        ("drop", "slash", "accused", "appeal"),
        ("accept", "slash", "upheld", None),
        ("accept", "drop", None, None),
    ],
)
def test_what_is_open_to_whoever_finds_the_decision_wrong(
    here: str, said: str, case: str | None, remedy: str | None
) -> None:
    verdicts = [accepted(3).model_copy(update={"outcome": said})]
    facts: Any = SimpleNamespace(case=None if case is None else SimpleNamespace(state=case))
    ground: Any = SimpleNamespace(facts=facts)
    report: Any = SimpleNamespace(outcome=here)
    assert _remedy(ground, report, verdicts) == remedy


def with_false_logprobs(rollouts: list[Rollout], *numbers: int) -> list[Rollout]:
    return [
        replace(rollout, output_logprobs=rollout.output_logprobs - np.float32(2)) if number in numbers else rollout
        for number, rollout in enumerate(rollouts)
    ]
