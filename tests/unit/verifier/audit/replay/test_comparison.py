"""A verdict beside the same checks here: what agrees, what is a lie, and what machines may differ by."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.checks.stages import Examination
from protocol.reasons import Outcome, RejectReason
from protocol.wire import CheckResult, Evidence, Verdict
from verifier.audit.replay.comparison import ReplayedVerdict, compare
from verifier.stamps import Revealed, StampSeat

ID = "0x" + "5b" * 32
VALIDATOR = "0x" + "aa" * 20
STAMP = (-1.0, -2.0)


def check(name: str = "toploc_mantissas", value: float | None = 0.01, **changes: Any) -> CheckResult:
    limits = {"reject_threshold": 0.04, "slash_threshold": 0.1} if value is not None else {}
    return CheckResult(check=name, value=value, **({"outcome": Outcome.ACCEPT} | limits | changes))


def refused(value: float = 0.05, outcome: Outcome = Outcome.DROP, name: str = "toploc_mantissas") -> CheckResult:
    return check(name, value, outcome=outcome, reason=RejectReason.TOPLOC_MISMATCH.value)


def compared(
    said: list[CheckResult],
    here: list[CheckResult],
    outcome: Outcome = Outcome.ACCEPT,
    reason: RejectReason | None = None,
    stamp: tuple[float, ...] = STAMP,
    stamp_here: tuple[float, ...] = STAMP,
    exact: tuple[str, ...] = (),
) -> ReplayedVerdict:
    evidence = Evidence(submission_id=ID, seed=ID, num_units=7, checks=tuple(said), work_stamp=stamp)
    verdict = Verdict(
        submission_id=ID,
        pool_id=1,
        epoch=2,
        round=0,
        seat=3,
        outcome=outcome,
        reason=reason.code if reason else 0,
        rules_hash=ID,
        evidence_hash=ID,
    )
    revealed = Revealed(StampSeat(ID, ID, 0, 3), verdict, evidence)
    return compare(VALIDATOR, revealed, Examination(None, tuple(here)), exact, stamp_here)


SCHEMA = check("schema", None)


def test_a_verdict_that_says_what_is_found_holds_and_shows_how_far_apart() -> None:
    found = compared([SCHEMA, check(value=0.0101)], [SCHEMA, check(value=0.010123)])
    assert found.holds and (found.agreement, found.stamp, found.stamp_difference) == ("agrees", "holds", 0.0)
    (_, one) = found.checks
    assert one.said is not None and one.here is not None
    assert (one.difference, one.is_far, one.said.margin, one.here.margin) == (
        pytest.approx(0.0),
        False,
        pytest.approx(0.0299),
        pytest.approx(0.0299),
    )


@pytest.mark.parametrize(
    ("said", "here", "outcome", "reason"),
    [
        (check(), refused(0.2, Outcome.SLASH), Outcome.ACCEPT, None),
        (check(), refused(0.06), Outcome.ACCEPT, None),
        (refused(0.2, Outcome.SLASH), check(), Outcome.SLASH, RejectReason.TOPLOC_MISMATCH),
        (refused(0.2, Outcome.SLASH), refused(0.06), Outcome.SLASH, RejectReason.TOPLOC_MISMATCH),
    ],
)
def test_another_outcome_contradicts_it(
    said: CheckResult, here: CheckResult, outcome: Outcome, reason: RejectReason | None
) -> None:
    found = compared([said], [here], outcome, reason)
    assert not found.holds and found.agreement == "contradicted" and not found.is_close
    assert found.faults[0].startswith("said ")


def test_two_machines_on_both_sides_of_a_limit_are_told_apart_from_a_lie() -> None:
    found = compared([check(value=0.0399)], [refused(0.0401)])
    assert (found.agreement, found.is_close) == ("contradicted", True)
    two = [check(value=0.0399), check("toploc_exponents", 0.01)]
    found = compared(two, [refused(0.0401), refused(0.9, Outcome.SLASH, "toploc_exponents")])
    assert (found.agreement, found.is_close) == ("contradicted", False)


def test_the_same_outcome_for_another_reason_holds_and_says_so() -> None:
    here = check("logprobs", 0.05, outcome=Outcome.DROP, reason=RejectReason.LOGPROB_MISMATCH.value)
    found = compared([refused()], [here, check()], Outcome.DROP, RejectReason.TOPLOC_MISMATCH)
    assert (found.agreement, found.reason, found.reason_here) == (
        "another reason",
        "toploc_mismatch",
        "logprob_mismatch",
    )


def test_numbers_that_no_machine_gives_are_a_fault_and_small_ones_arent() -> None:
    near, far = compared([check(value=0.018)], [check()]), compared([check(value=0.03)], [check()])
    assert near.holds and near.checks[0].difference == pytest.approx(-0.008)
    assert far.agreement == "agrees" and far.faults == ("numbers that no machine gives: toploc_mantissas",)


def test_counts_may_differ_by_near_ties_and_what_has_no_limit_by_a_tenth() -> None:
    def flips(value: int) -> CheckResult:
        return check("sampling_flips", value, reject_threshold=3, slash_threshold=4)

    def surprisal(value: float) -> CheckResult:
        return check("plausibility_surprisal", value, reject_threshold=None, slash_threshold=None)

    assert compared([flips(0)], [flips(2)]).holds
    assert not compared([flips(0)], [flips(9)]).holds
    assert compared([surprisal(-0.35)], [surprisal(-0.36)]).holds
    assert not compared([surprisal(0.0)], [surprisal(-0.36)]).holds
    freedom = [check("sampling_freedom", value, reject_threshold=None, slash_threshold=None) for value in (0.0, 9.0)]
    assert compared(freedom[:1], freedom[1:]).holds, "one near-tie more is bits of freedom"


def test_evidence_without_the_checks_is_a_fault() -> None:
    assert compared([SCHEMA], [SCHEMA, check()]).faults == ("its evidence leaves out toploc_mantissas",)
    assert "shows no check at all" in compared([], [SCHEMA]).faults
    known_elsewhere = compared([SCHEMA, check("tomorrows_check")], [SCHEMA])
    assert known_elsewhere.holds and known_elsewhere.checks[1].here is None


def test_a_verdict_has_to_follow_from_its_own_checks() -> None:
    found = compared([refused(0.2, Outcome.SLASH)], [refused(0.2, Outcome.SLASH)])
    assert any(fault.startswith("its own checks come to slash") for fault in found.faults)


@pytest.mark.parametrize(
    ("stamp", "here", "state", "holds"),
    [
        (STAMP, STAMP, "holds", True),
        ((), (), "none due", True),
        ((-1.0, -2.05), STAMP, "holds", True),
        ((-1.0, -2.5), STAMP, "doesn't hold", False),
        ((-1.0,), STAMP, "doesn't hold", False),
        ((), STAMP, "missing", False),
        (STAMP, (), "not due", False),
    ],
)
def test_the_stamp_is_held_against_the_same_recomputed(
    stamp: tuple[float, ...], here: tuple[float, ...], state: str, holds: bool
) -> None:
    found = compared([check()], [check()], stamp=stamp, stamp_here=here)
    assert (found.stamp, found.holds) == (state, holds)


@pytest.mark.parametrize("reason", [RejectReason.DUPLICATE, RejectReason.RULES_CHANGED])
def test_what_rests_on_a_memory_is_neither_confirmed_nor_contradicted(reason: RejectReason) -> None:
    said = check("duplicates", None, outcome=Outcome.DROP, reason=reason.value)
    found = compared([SCHEMA, said], [SCHEMA, check("duplicates", None), check()], Outcome.DROP, reason, stamp=())
    assert (found.agreement, found.stamp, found.holds) == ("not replayable", "not replayable", True)


def test_what_is_exactly_false_is_among_the_faults() -> None:
    assert compared([check()], [check()], exact=("num_units 1, the file has 7",)).faults == (
        "num_units 1, the file has 7",
    )
