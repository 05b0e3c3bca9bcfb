"""A lazy validator is found out by the first re-audit of a verdict of its, and an honest one never is.

What is measured here is the chance of being found per re-audited verdict (100 %: the arithmetic of a lucky guess is in
docs/verifier.md); how many verdicts that takes at a rate below one is `test_re_audits_come_at_their_rate_…` of
tests/unit/protocol/test_draw.py, and `expected_verdicts` below.
"""

from __future__ import annotations

import pytest

from protocol.api import ReauditState, Standing
from protocol.stamp import MAX_DIFFERENCE
from tests.attacks.lazy.kinds import AcceptsUnseen, AuditsUnseen, Copies, ForgetsTheStamp, Guesses, LazyJudge, Slanders
from tests.attacks.lazy.town import Town
from verifier.audit.bundle.ground import claims_alone
from verifier.audit.bundle.verify import verify_bundle
from verifier.audit.step import Report, Step, StepState

LATER = 2
"""Seats that are active from this epoch on can't be drawn for what came in before, but they can for its re-audit."""


def test_honest_validators_agree_and_are_paid_for_both_rounds(town: Town) -> None:
    validators = [town.join() for _ in range(3)]
    submission_ids = [town.submit(), town.submit()]
    town.run_to_the_end()
    for submission_id in submission_ids:
        view = town.view(submission_id)
        assert view.standing is Standing.ACCEPTED
        assert view.reaudit is not None and view.reaudit.state is ReauditState.AGREED
        # At a rate of one each re-audit is re-audited, until everybody has looked.
        assert {verdict.validator for verdict in view.verdicts} == set(validators)
        assert [verdict.num_stamp_agreeing for verdict in view.verdicts] == [2, 1, 0]
        for review in (review for verdict in view.verdicts for review in verdict.evidence.stamp_reviews):
            assert review.largest_difference is not None and review.largest_difference < MAX_DIFFERENCE / 100
        assert len({verdict.evidence.work_stamp for verdict in view.verdicts}) == 3
    assert town.disputed() == {}
    num_units = sum(town.view(submission_id).num_units for submission_id in submission_ids)
    assert [town.accounts()[validator] for validator in validators] == [num_units] * 3
    town.turn()
    for history in town.histories.values():
        newest = history.num_epochs - 1
        assert history.payments.faults(newest) == []
        assert history.payments.earnings(newest) == town.accounts()


@pytest.mark.parametrize("kind", [AcceptsUnseen, Guesses, pytest.param(ForgetsTheStamp, marks=pytest.mark.slow)])
def test_who_accepts_without_looking_is_found_by_its_first_re_audit(town: Town, kind: type[LazyJudge]) -> None:
    lazy = town.join(kind)
    honest = [town.join(from_epoch=LATER) for _ in range(2)]
    submission_id = town.submit()
    town.run_to_the_end()
    view = town.view(submission_id)
    assert [verdict.validator for verdict in view.verdicts][0] == lazy
    # Round 1's first seat disputes it, which asks for one more; both say the same.
    assert [verdict.num_stamp_disputing for verdict in view.verdicts] == [2, 0, 0]
    assert town.disputed() == {lazy: 1}
    assert view.reaudit is not None and view.reaudit.state is ReauditState.AGREED  # the work was honest
    town.turn()
    for history in (town.histories[lazy], town.histories[honest[0]]):
        assert history.payments.opinions.num_disputed_stamps(lazy) == 1
        assert history.payments.faults(history.num_epochs) == []


def test_a_forgery_that_a_lazy_validator_accepted_is_challenged_and_trains_nothing(town: Town) -> None:
    lazy = town.join(AcceptsUnseen)
    for _ in range(2):
        town.join(from_epoch=LATER)
    submission_id = town.submit(forged=True)
    town.run(4)
    assert town.view(submission_id).standing is Standing.ACCEPTED
    town.run_to_the_end()
    view = town.view(submission_id)
    assert view.reaudit is not None and view.reaudit.state is ReauditState.DISAGREED
    assert view.standing is Standing.CHALLENGED
    assert town.site.client(town.site.trainer).lease_batch(1) is None
    assert town.disputed() == {lazy: 1}  # a stamp where none was due
    assert town.accused == {submission_id}
    assert failed(audited(town, submission_id)) == {"re-audit"}


def test_an_auditor_sees_from_a_bundle_whether_a_re_audit_was_due_and_held(town: Town) -> None:
    for _ in range(2):
        town.join()
    submission_id = town.submit()
    town.run_to_the_end()
    report = audited(town, submission_id)
    assert not failed(report) and again(report).state is StepState.OK, list(report.lines())
    votes = "2 accept, 0 reject in both rounds"
    assert again(report).values == {"due": "yes", "votes": votes, "disputed_stamps": "none"}
    undue = town.site.client().bundle(submission_id)
    undue = undue.model_copy(update={"chain": undue.chain.model_copy(update={"reaudit_bps": 0})})
    assert "no beacon picked it" in again(verify_bundle(undue, claims_alone(undue), submission_id)).why
    silent = town.site.client().bundle(submission_id)
    silent = silent.model_copy(update={"verdicts": silent.verdicts[:1]})
    assert again(verify_bundle(silent, claims_alone(silent), submission_id)).state is StepState.OPEN


def audited(town: Town, submission_id: str) -> Report:
    bundle = town.site.client().bundle(submission_id)
    return verify_bundle(bundle, claims_alone(bundle), submission_id)


def failed(report: Report) -> set[str]:
    return {step.name for step in report.steps if step.state is StepState.FAILED}


def again(report: Report) -> Step:
    return next(step for step in report.steps if step.name == "re-audit")


def test_who_copies_a_colleagues_verdict_has_his_own_stamp_wrong(town: Town) -> None:
    town.site.pool(accept_quorum=2)
    model, copier = town.join(), town.join(Copies)
    for _ in range(2):
        town.join(from_epoch=LATER)
    submission_id = town.submit()
    town.run_to_the_end()
    view = town.view(submission_id)
    said = {verdict.validator: verdict for verdict in view.verdicts}
    assert said[copier].evidence == said[model].evidence and view.standing is Standing.ACCEPTED
    assert said[copier].num_stamp_disputing == 2 and said[model].num_stamp_disputing == 0
    assert town.disputed() == {copier: 1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AuditsUnseen, Slanders])
def test_who_does_not_look_in_round_1_convinces_nobody_and_is_found_by_whoever_comes_after(
    town: Town, kind: type[LazyJudge]
) -> None:
    """Where a slanderer has the last word of all seats that there are, nobody is left to speak for the one before."""
    first = town.join()
    lazy = town.join(kind, from_epoch=LATER)
    others = [town.join(from_epoch=LATER) for _ in range(2)]
    submission_ids = [town.submit() for _ in range(2)]
    town.run_to_the_end()
    orders = [[verdict.validator for verdict in town.view(found).verdicts] for found in submission_ids]
    assert all(set(order) == {first, lazy, *others} for order in orders)
    slandered = {order[-2] for order in orders if order[-1] == lazy and kind is Slanders}
    assert set(town.disputed()) & {first, *others} == slandered
    assert town.disputed().get(lazy, 0) == sum(order[-1] != lazy for order in orders)


def test_without_re_audits_nobody_looks_at_the_stamps_of_one_draw(town: Town) -> None:
    town.site.pool(accept_quorum=2, reaudit_bps=0)
    lazy, honest = town.join(AcceptsUnseen), town.join()
    submission_id = town.submit()
    town.run_to_the_end()
    assert town.view(submission_id).standing is Standing.ACCEPTED and town.disputed() == {}
    assert {lazy, honest} <= set(town.accounts())


@pytest.mark.parametrize(("rate", "expected", "within_99"), [(0.1, 10, 44), (0.05, 20, 90)])
def test_how_many_verdicts_it_takes(rate: float, expected: int, within_99: int) -> None:
    """A lazy verdict is found if it is picked: geometric with the re-audit rate."""
    unseen = [(1 - rate) ** count for count in range(1_000)]
    assert sum(unseen) == pytest.approx(expected, rel=1e-6)  # the mean number up to the first that is found
    assert next(count for count, chance in enumerate(unseen) if chance <= 0.01) == within_99
