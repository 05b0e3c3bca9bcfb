"""What a log says of its validators: hand-made logs, in which some are lazy, late or wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import VerificationFailed
from protocol.reasons import Outcome
from tests.unit.verifier.conftest import LogTable
from verifier.audit.log.log_reader import read_log
from verifier.audit.reports.accountability import Accountability, ValidatorRow, account_for, percentile
from verifier.audit.reports.accountability_table import MAX_MATRIX, accountability_lines
from verifier.audit.reports.judging import MAX_FINDINGS, Judging
from verifier.audit.table import MAX_WIDTH

A, B, C = ("0x" + letter * 40 for letter in "abc")
PROVIDER = "0x" + "77" * 20
ACCEPT, DROP, SLASH = Outcome


def submission(number: int) -> str:
    return f"0x{number:064x}"


@dataclass
class Bench:
    """Writes a log as a coordinator does. A validator's seat is its letter's number."""

    log: LogTable = field(default_factory=LogTable)
    time: int = 1_000

    def note(self, kind: str, subject: str, **data: Any) -> None:
        self.log.append(kind, subject, self.time, **data)

    def draw(self, number: int, validator: str, round_number: int = 0) -> None:
        self.note("draw.opened", submission(number), **self.turn(validator, round_number))

    def miss(self, number: int, validator: str, round_number: int = 0) -> None:
        self.note("draw.missed", submission(number), **self.turn(validator, round_number))

    def reveal(self, number: int, validator: str, outcome: Outcome = ACCEPT, after: int = 5, **data: Any) -> None:
        self.time += after
        turn = self.turn(validator, data.pop("round_number", 0))
        self.note("verdict.revealed", submission(number), **turn, outcome=int(outcome), **data)

    def settle(self, number: int, accepted: bool = True, payments: list[list[str]] | None = None) -> None:
        kind = "submission.accepted" if accepted else "submission.rejected"
        self.note(kind, submission(number), provider=PROVIDER, payments=payments or [])

    def judge(self, number: int, *validators: str, accepted: bool = True) -> None:
        """Drawn, revealed of one mind, settled."""
        for validator in validators:
            self.draw(number, validator)
            self.reveal(number, validator, ACCEPT if accepted else DROP)
        self.settle(number, accepted)

    def audit_again(self, number: int, validator: str, outcome: Outcome, end: str, accepted: bool | None) -> None:
        self.note("reaudit.drawn", submission(number), epoch=1)
        self.draw(number, validator, 1)
        self.reveal(number, validator, outcome, round_number=1)
        self.note(f"reaudit.{end}", submission(number), accepted=accepted, payments=[])

    def case(self, number: int, end: str, block: int = 1) -> None:
        self.note(f"chain.Case{end}", submission(number), block=block, arguments={})

    def report(self) -> Accountability:
        judging = Judging()
        for entry in self.log.entries:
            judging.note(entry)
        return account_for(judging)

    def row(self, validator: str) -> ValidatorRow:
        return next(row for row in self.report().validators if row.validator == validator)

    @staticmethod
    def turn(validator: str, round_number: int) -> dict[str, Any]:
        seat = int(validator[-1], 16)
        return {"round": round_number, "draw": seat, "seat": seat, "validator": validator}


@pytest.fixture
def court() -> Bench:
    return Bench()


def pair(report: Accountability, *validators: str) -> tuple[int, int]:
    """Same and other outcomes."""
    found = next(pair for pair in report.agreement if pair.validators == validators)
    return found.num_same, found.num_other


def test_an_honest_log_overturns_nobody(court: Bench) -> None:
    for number in range(4):
        court.judge(number, A, B, accepted=number != 3)
    court.audit_again(0, C, ACCEPT, "agreed", accepted=True)
    report = court.report()
    assert [row.validator for row in report.validators] == [A, B, C]
    assert report.num_overturned == 0
    assert pair(report, A, B) == (4, 0)
    assert pair(report, A, C) == (1, 0)
    assert court.row(A).verdicts == {"accept": 3, "drop": 1, "slash": 0}
    assert (report.audited.num_settled, report.audited.num_drawn, report.audited.num_agreed) == (4, 1, 1)


def test_a_lazy_validator_shows(court: Bench) -> None:
    """C always accepts; others drop one in two, a re-audit finds one of its own, and its stamps are disputed."""
    for number in range(6):
        court.draw(number, A)
        court.draw(number, C)
        court.reveal(number, A, DROP if number % 2 else ACCEPT)
        court.reveal(number, C, after=0)
        if number % 2:
            court.draw(number, B)
            court.reveal(number, B, DROP, stamp_reviews=[[C, 0, False]])
        court.settle(number, accepted=not number % 2)
    court.judge(7, C)
    court.audit_again(7, A, DROP, "disagreed", accepted=False)
    lazy, report = court.row(C), court.report()
    assert lazy.verdicts == {"accept": 7, "drop": 0, "slash": 0}
    assert lazy.overturned == {"decision": 3, "reaudit": 1, "case": 0}
    assert (lazy.num_stamps_reviewed, lazy.num_stamps_disputed) == (3, 3)
    assert pair(report, B, C) == (0, 3)
    assert court.row(A).overturned == {"decision": 0, "reaudit": 0, "case": 0}
    assert [one.submission_id for one in report.overturned] == [submission(n) for n in (1, 3, 5, 7)]


def test_who_was_outvoted_and_right_is_vindicated(court: Bench) -> None:
    for validator, outcome in ((A, ACCEPT), (B, ACCEPT), (C, SLASH)):
        court.draw(1, validator)
        court.reveal(1, validator, outcome)
    court.settle(1)
    assert court.row(C).overturned["decision"] == 1
    court.case(1, "Upheld")
    assert (court.row(C).num_vindicated, court.row(C).overturned["decision"]) == (1, 0)
    assert court.row(A).overturned == {"decision": 0, "reaudit": 0, "case": 1}


@pytest.mark.parametrize(("end", "outcome", "is_overturned"), [
    ("Upheld", ACCEPT, True), ("Upheld", DROP, False), ("Upheld", SLASH, False),
    ("Overturned", SLASH, True), ("Overturned", DROP, False), ("Overturned", ACCEPT, False),
])  # fmt: skip
def test_a_jury_is_the_last_instance(court: Bench, end: str, outcome: Outcome, is_overturned: bool) -> None:
    court.draw(1, A)
    court.reveal(1, A, outcome)
    court.settle(1, accepted=outcome is ACCEPT)
    court.case(1, end)
    assert court.row(A).overturned["case"] == is_overturned


def test_a_case_that_lapsed_says_nothing(court: Bench) -> None:
    court.judge(1, A)
    court.case(1, "Lapsed")
    assert court.report().num_overturned == 0


def test_a_case_in_a_block_that_the_chain_dropped_says_nothing(court: Bench) -> None:
    court.judge(1, A)
    court.case(1, "Upheld", block=9)
    assert court.report().num_overturned == 1
    court.note("chain.reorged", submission(0), fork_block=8)
    assert court.report().num_overturned == 0


def test_an_undecided_reaudit_overturns_nobody(court: Bench) -> None:
    court.judge(1, A)
    court.audit_again(1, B, DROP, "undecided", accepted=None)
    report = court.report()
    assert (report.audited.num_drawn, report.audited.num_undecided, report.num_overturned) == (1, 1, 1)
    assert [(one.validator, one.by) for one in report.overturned] == [(B, "decision")]


def test_a_reinstated_decision_is_settled_once(court: Bench) -> None:
    court.judge(1, A)
    court.settle(1, payments=[[A, "9"]])
    assert court.report().audited.num_settled == 1
    assert court.row(A).pay_wei == "0"


def test_missed_and_late_turns(court: Bench) -> None:
    court.draw(1, A)
    court.miss(1, A)
    court.draw(2, A)
    court.miss(2, A)
    court.reveal(2, A)
    court.draw(3, A)
    court.reveal(3, A)
    court.draw(4, A)
    turns = court.row(A).turns
    assert (turns.num_drawn, turns.num_in_time, turns.num_missed, turns.num_late, turns.num_open) == (4, 1, 2, 1, 1)


def test_time_to_verdict(court: Bench) -> None:
    for number in range(10):
        court.draw(number, A)
        court.reveal(number, A, after=number + 1)
    assert (court.row(A).median_seconds, court.row(A).p90_seconds) == (5, 9)


def test_who_gave_no_verdict_took_no_time(court: Bench) -> None:
    court.draw(1, A)
    assert (court.row(A).median_seconds, court.row(A).p90_seconds) == (None, None)


@given(values=st.lists(st.integers(0, 50), min_size=1), percent=st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_covers_it(values: list[int], percent: int) -> None:
    found = percentile(Counter(values), percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_pay_is_that_of_validators(court: Bench) -> None:
    court.draw(1, A)
    court.reveal(1, A)
    court.settle(1, payments=[[A, "7"], [PROVIDER, "1000"]])
    court.note("reaudit.drawn", submission(1))
    court.note("reaudit.agreed", submission(1), accepted=True, payments=[[A, "5"]])
    assert court.row(A).pay_wei == "12"
    assert [row.validator for row in court.report().validators] == [A]


def test_a_stamp_that_as_many_confirm_is_not_disputed(court: Bench) -> None:
    court.judge(1, A)
    court.reveal(1, B, stamp_reviews=[[A, 0, True]])
    court.reveal(1, C, stamp_reviews=[[A, 0, False]])
    assert (court.row(A).num_stamps_reviewed, court.row(A).num_stamps_disputed) == (1, 0)


def test_nobody_reviews_its_own_stamp(court: Bench) -> None:
    court.draw(1, A)
    court.reveal(1, A, stamp_reviews=[[A, 0, False]])
    assert court.row(A).num_stamps_reviewed == 0


def test_a_second_verdict_in_the_same_round_counts_for_nothing(court: Bench) -> None:
    court.judge(1, A)
    court.reveal(1, A, SLASH)
    assert court.row(A).verdicts == {"accept": 1, "drop": 0, "slash": 0}


@pytest.mark.parametrize("data", [{}, {"round": "0"}, {"validator": "me", "round": 0, "draw": 0, "seat": 0}])
def test_events_that_say_nothing_usable_are_counted(court: Bench, data: dict[str, Any]) -> None:
    court.judge(1, A)
    court.note("draw.opened", submission(2), **data)
    report = court.report()
    assert report.unreadable == {"num_unreadable": 1, "first_unreadable": 3}
    assert [row.validator for row in report.validators] == [A]


def test_a_log_without_judging_has_no_validators(court: Bench) -> None:
    court.note("task.leased", submission(1))
    assert list(accountability_lines(court.report()))[-1] == "no validator has been drawn"


turns_of = st.tuples(st.sampled_from([A, B, C]), st.sampled_from(["open", "missed", "late", "in_time"]))


@given(stories=st.lists(st.tuples(turns_of, st.sampled_from(list(Outcome)), st.booleans()), max_size=30))
def test_numbers_add_up(stories: list[tuple[tuple[str, str], Outcome, bool]]) -> None:
    court = Bench()
    for number, ((validator, state), outcome, is_settled) in enumerate(stories):
        court.draw(number, validator)
        if state in ("missed", "late"):
            court.miss(number, validator)
        if state in ("late", "in_time"):
            court.reveal(number, validator, outcome)
        if is_settled:
            court.settle(number)
    report = court.report()
    for row in report.validators:
        turns = row.turns
        assert turns.num_drawn == turns.num_in_time + turns.num_missed + turns.num_open
        assert sum(row.verdicts.values()) == turns.num_in_time + turns.num_late
    assert sum(row.turns.num_drawn for row in report.validators) == len(stories)
    assert report.num_overturned == sum(sum(row.overturned.values()) for row in report.validators)
    assert report.audited.num_settled == sum(is_settled for *_, is_settled in stories)


def test_the_same_log_gives_the_same_report(court: Bench) -> None:
    for number in range(5):
        court.judge(number, *((A, B, C) if number % 2 else (C, A)))
    assert court.report() == court.report()
    assert court.report().as_json({})["schema_version"] == 1


@pytest.mark.parametrize("num_validators", [2, MAX_MATRIX, MAX_MATRIX + 30])
def test_tables_fit_a_terminal(court: Bench, num_validators: int) -> None:
    validators = [f"0x{number:040x}" for number in range(1, num_validators + 1)]
    for number in range(1_200):
        court.judge(number, *(validators[(number + i) % num_validators] for i in range(2)))
    court.settle(2_000, payments=[[validators[0], str(10**24)]])
    court.case(3, "Upheld")
    lines = "\n".join(accountability_lines(court.report())).split("\n")
    assert max(map(len, lines)) <= MAX_WIDTH
    assert any("overturned verdicts: 2" in line for line in lines)


def test_verdicts_without_end_on_one_submission_are_passed_over(court: Bench) -> None:
    """Each pair of validators is a row: a log that made up thousands would fill any memory."""
    validators = [f"0x{number:040x}" for number in range(1, MAX_FINDINGS + 4)]
    for validator in validators[:MAX_FINDINGS]:
        court.reveal(1, validator)
    assert court.report().unreadable["num_unreadable"] == 0
    for validator in validators[MAX_FINDINGS:]:
        court.reveal(1, validator)
    report = court.report()
    assert report.unreadable == {"num_unreadable": 3, "first_unreadable": MAX_FINDINGS}
    assert len(report.validators) == MAX_FINDINGS
    assert len(report.agreement) == MAX_FINDINGS * (MAX_FINDINGS - 1) // 2


def test_a_log_that_was_rewritten_gives_no_report(court: Bench, chain: Any) -> None:
    court.judge(1, A)
    court.log.anchor(chain)
    forged = Bench()
    forged.judge(1, B)
    assert list(read_log(court.log.read, chain.heads(0)))
    with pytest.raises(VerificationFailed):
        list(read_log(forged.log.read, chain.heads(0)))
