"""Every end that work can come to has its words, with the reason as it stands everywhere."""

from __future__ import annotations

import pytest

from protocol.reasons import RejectReason
from tests.unit.protocol.log_story import NODE, PROVIDER, SUBMISSION, TASK, Story

HINT = RejectReason.WRONG_PROMPTS.hint
ROOT, CHALLENGER = "0x" + "0b" * 32, "0x" + "cc" * 20
WORK = f"submission {SUBMISSION} of node {NODE}"


@pytest.fixture
def story() -> Story:
    """A submission that has just come in."""
    story = Story()
    story.submit()
    return story


def accused(story: Story) -> None:
    story.reject()
    story.copy("AllotmentHeld", node=NODE, amount="5")
    story.copy("Accused", node=NODE, reason="67")


def test_a_lease_is_open_ends_or_is_void() -> None:
    ends = {
        "task.expired": ("expired", "Expired", ", then not handed in by its deadline"),
        "task.abandoned": ("abandoned", "Handed back", ", then handed back by its node"),
        "task.reorged": ("reorged", "Void", ", then voided, as the chain dropped its beacon"),
    }
    begin = f"task {TASK} of node {NODE} was leased at 1970-01-01 00:00:00 UTC"
    for kind, (status, headline, end) in ends.items():
        story = Story()
        story.tell("task.leased", TASK, node=NODE, deadline=100)
        assert story.fate(TASK).sentence == f"Leased: {begin}, and isn't handed in yet."
        story.tell(kind, TASK, node=NODE)
        assert story.fate(TASK).sentence == f"{headline}: {begin}{end}."
        assert story.fate(TASK).status == status


def test_a_renewed_lease_says_until_when_and_is_told_no_more_once_it_is_handed_in() -> None:
    story = Story()
    story.tell("task.leased", TASK, node=NODE, deadline=100)
    story.tell("task.renewed", TASK, node=NODE, deadline=200)
    story.tell("task.renewed", TASK, node=NODE, deadline=300)
    begin = (
        f"task {TASK} of node {NODE} was leased at 1970-01-01 00:00:00 UTC, then given until 1970-01-01 00:05:00 UTC"
    )
    assert story.fate(TASK).sentence == f"Leased: {begin}, and isn't handed in yet."
    story.tell("submission.received", SUBMISSION, task_id=TASK, node=NODE, num_units=48)
    assert "given until" not in story.fate(TASK).sentence


def test_pending_work_says_what_it_waits_for(story: Story) -> None:
    begin = f"Pending: {WORK} was received at 1970-01-01 00:01:00 UTC, and waits for"
    assert story.fate().sentence == f"{begin} seats to be drawn."
    story.tell("draw.opened", SUBMISSION, round=0, draw=0, seat=1, validator=CHALLENGER)
    assert story.fate().sentence == f"{begin} verdicts."
    assert story.fate(TASK) == story.fate() and story.fate().reason is None


def test_accepted_work_says_what_it_earned_and_how_it_was_used(story: Story) -> None:
    story.accept()
    begin = f"Accepted: {WORK} was received at 1970-01-01 00:01:00 UTC"
    earned = f"accepted with 48 units, 0.000000000000000144 credits for {PROVIDER}"
    assert story.fate().sentence == f"{begin}, then {earned}."
    story.tell("group.unused", SUBMISSION, group=0, reason="no_variance")
    story.tell("batch.leased", ROOT, step=4, groups=[[SUBMISSION, 1]])
    left = "left with 1 group unused for no_variance"
    assert story.fate().sentence == f"{begin}, {earned}, {left}, then handed to the trainer in step 4."
    story.tell("batch.consumed", ROOT, step=4)
    assert story.fate().sentence == f"{begin}, {earned}, {left}, then trained on in step 4."


def test_rejected_work_says_the_reason_and_its_hint(story: Story) -> None:
    story.reject()
    fate = story.fate()
    assert (fate.status, fate.reason) == ("rejected", "wrong_prompts")
    assert fate.sentence.startswith(f"Rejected for wrong_prompts ({HINT}): {WORK} was received at ")
    assert fate.sentence.endswith("then rejected for wrong_prompts.")


def test_a_reason_that_nobody_knows_is_said_as_it_is(story: Story) -> None:
    story.reject("from_the_future")
    assert story.fate().sentence.startswith("Rejected for from_the_future: ")


@pytest.mark.parametrize("reason", ["\x1b[2J", "no reason", None, 7, ["a"]])
def test_what_is_no_reason_is_left_out(story: Story, reason: object) -> None:
    story.reject(reason)  # type: ignore[arg-type]
    assert story.fate().reason is None and story.fate().sentence.startswith("Rejected: ")


def test_a_slash_is_said_with_its_amounts(story: Story) -> None:
    accused(story)
    assert story.fate().status == "accused"
    assert story.fate().sentence.startswith(f"Accused for wrong_prompts ({HINT}): ")
    story.copy("Slashed", node=NODE, amount="5")
    story.copy("CaseUpheld", node=NODE, slashed="5", deducted="0")
    fate = story.fate()
    assert (fate.status, fate.reason) == ("slashed", "wrong_prompts")
    slashed = "slashed by 0.000000000000000005 credits of stake"
    assert fate.sentence.endswith(f"accused before the Court for wrong_prompts, then {slashed}.")
    story.copy("CaseUpheld", node=NODE, slashed="5", deducted="9")
    assert story.fate().sentence.endswith(f"{slashed} and 0.000000000000000009 credits of earnings.")


def test_an_appeal_brings_it_before_a_jury_and_may_end_three_ways(story: Story) -> None:
    accused(story)
    story.copy("Appealed", appellant=PROVIDER, bond="1")
    assert story.fate().sentence.startswith("Before a jury for wrong_prompts (")
    ends = {
        "CaseOverturned": f"Acquitted of wrong_prompts ({HINT}): ",
        "CaseUpheld": f"Slashed for wrong_prompts ({HINT}): ",
        "CaseLapsed": f"Rejected for wrong_prompts ({HINT}): ",
    }
    for name, headline in ends.items():
        story.copy(name, node=NODE, slashed="5", deducted="0")
        assert story.fate().sentence.startswith(headline)
        story.events.pop()


def test_a_slash_that_a_reorg_took_back_is_none(story: Story) -> None:
    accused(story)
    story.copy("CaseUpheld", block=9, slashed="5", deducted="0")
    story.tell("chain.reorged", fork_block=8)
    assert story.fate().status == "accused"


def test_accepted_work_that_an_outsider_challenges(story: Story) -> None:
    story.accept()
    story.copy("Challenged", node=NODE, challenger=CHALLENGER, reason="65")
    fate = story.fate()
    assert (fate.status, fate.reason) == ("before_jury", "toploc_mismatch")
    assert fate.sentence.endswith(f"then challenged before a jury by {CHALLENGER} for toploc_mismatch.")
    story.copy("CaseLapsed", node=NODE, bond="1")
    assert (story.fate().status, story.fate().reason) == ("accepted", None)


def test_a_re_audit_challenges_confirms_or_contradicts(story: Story) -> None:
    story.accept()
    story.tell("reaudit.drawn", SUBMISSION, epoch=3)
    story.tell("submission.challenged", SUBMISSION, node=NODE, round=1, reason="toploc_mismatch")
    assert story.fate().sentence.endswith("then challenged by a re-audit for toploc_mismatch.")
    assert (story.fate().status, story.fate().reason) == ("challenged", "toploc_mismatch")
    story.tell("reaudit.disagreed", SUBMISSION, accepted=False, payments=[])
    assert story.fate().status == "challenged"
    assert story.fate().sentence.endswith("then contradicted by a re-audit.")
    story.events.pop()
    story.tell("reaudit.agreed", SUBMISSION, accepted=True, payments=[])
    story.accept()
    assert story.fate().sentence.endswith("confirmed by a re-audit, then accepted after all.")
    assert (story.fate().status, story.fate().reason) == ("accepted", None)


def test_what_was_forced_in_is_refused_for_a_reason_or_taken_in_later() -> None:
    story = Story()
    story.copy("IntakeForced", node=NODE, epoch="3")
    begin = f"{WORK} was forced in on chain at 1970-01-01 00:00:00 UTC"
    assert story.fate().sentence == f"Forced in: {begin}."
    story.tell("submission.refused", SUBMISSION, node=NODE, reason="file_missing", detail="")
    refused = "refused at 1970-01-01 00:01:00 UTC for file_missing"
    headline = f"Refused for file_missing ({RejectReason.FILE_MISSING.hint})"
    assert story.fate().sentence == f"{headline}: {begin}, then {refused}."
    story.submit()
    fate = story.fate()
    assert (fate.status, fate.reason) == ("pending", None)
    assert fate.sentence.startswith(f"Pending: {begin}, {refused}, then received at ")


def test_batches_and_weights_have_a_sentence_of_their_own() -> None:
    story = Story()
    story.tell("batch.leased", ROOT, step=4, groups=[[SUBMISSION, 1]])
    begin = f"batch {ROOT} of step 4 was handed to the trainer with 1 group at 1970-01-01 00:00:00 UTC"
    assert story.fate(ROOT).sentence == f"Batched: {begin}."
    story.tell("batch.consumed", ROOT, step=4)
    assert story.fate(ROOT).sentence == f"Consumed: {begin}, then trained on at 1970-01-01 00:01:00 UTC."
    story.copy("WeightsPublished", TASK, version="4")
    story.tell("weights.announced", TASK, policy_version=4)
    assert story.fate(TASK).sentence.startswith(
        f"Published: policy version 4 with manifest {TASK} was published on chain"
    )


def test_any_other_subject_is_told_by_its_last_leaf() -> None:
    story = Story()
    story.tell("earnings.proposed", ROOT)
    assert story.fate(ROOT).sentence == (
        f"The log has 1 leaf about {ROOT}; the last is earnings.proposed at 1970-01-01 00:00:00 UTC."
    )
    assert story.fate(ROOT).status == "earnings.proposed"
