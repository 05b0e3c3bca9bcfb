"""What a leaf says whoever wrote it, and which leaves are about whom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from protocol import events
from protocol.errors import VerificationFailed
from protocol.events import BATCHED, REORGED, LogEvent, related_events, standing_events, utc
from protocol.wire import ZERO_HASH
from tests.unit.protocol.log_story import NODE, PROVIDER, SUBMISSION, TASK, Story

ROOT, OTHER = "0x" + "0b" * 32, "0x" + "77" * 32
EVENT = {"schema_version": 1, "index": 5, "type": "task.leased", "subject": TASK, "time": 9, "data": {}}


def types(story: Story, subject: str) -> list[str]:
    return [event.type for event in related_events(story, subject).events]


def test_facts_are_read_from_data_and_from_a_contracts_arguments() -> None:
    story = Story()
    said = story.tell("submission.accepted", SUBMISSION, node=NODE, num_units=3, amount_wei="9", reason="stale_policy")
    assert (said.node, said.units, said.amount_wei, said.reason) == (NODE, 3, 9, "stale_policy")
    copy = story.copy("Accused", node=NODE, provider=PROVIDER, reason="67", amount="5", seat="2")
    assert (copy.node, copy.provider, copy.reason, copy.amount_wei, copy.seat) == (
        NODE,
        PROVIDER,
        "wrong_prompts",
        5,
        2,
    )


@pytest.mark.parametrize("value", [None, 7, "=cmd()", "\x1b[2J", [], {"a": 1}, True, -1, 2**60, "0x12"])
def test_whatever_stands_in_a_place_is_no_fact_of_another_kind(value: Any) -> None:
    names = ("node", "provider", "validator", "num_units", "amount_wei", "reason", "task_id", "groups")
    event = Story().tell("batch.leased", ROOT, **dict.fromkeys(names, value))
    copy = Story().copy("Accused", **dict.fromkeys((*names, "amount"), value))
    for said in (event, copy):
        assert {said.node, said.provider, said.validator, said.amount_wei, said.reason, said.hash("task_id")} == {None}
        assert said.units in ({None} if value != 7 else {7, None})
        assert not said.has_group_of(SUBMISSION)
    assert LogEvent.of(EVENT | {"type": "chain.Accused", "data": {"arguments": value}}).reason is None


@pytest.mark.parametrize(
    "change",
    [{"type": "=1"}, {"type": 3}, {"time": -1}, {"time": "9"}, {"data": []}, {"subject": "0x1"}, {"index": None}],
)
def test_what_has_no_form_of_an_event_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(VerificationFailed, match="holds no event"):
        LogEvent.of(EVENT | change)
    with pytest.raises(VerificationFailed, match="holds no event"):
        LogEvent.of({name: value for name, value in EVENT.items() if name not in change})


def test_a_submission_a_task_and_their_batches_are_one_story() -> None:
    story = Story()
    story.submit()
    story.submit("0x" + "05" * 32, "0x" + "06" * 32)
    story.accept()
    story.tell("batch.leased", OTHER, step=4, groups=[["0x" + "05" * 32, 0]])
    story.tell("batch.leased", ROOT, step=5, groups=[["0x" + "05" * 32, 1], [SUBMISSION, 0]])
    story.tell("batch.consumed", ROOT, step=5)
    expected = ["task.leased", "submission.received", "submission.accepted", "batch.leased", "batch.consumed"]
    assert types(story, SUBMISSION) == types(story, TASK) == expected
    assert related_events(story, TASK).submission_id == SUBMISSION
    assert types(story, ROOT) == ["batch.leased", "batch.consumed"]
    assert types(story, "0x" + "99" * 32) == []


def test_batches_of_steps_for_which_it_is_too_old_are_not_looked_at() -> None:
    story = Story(max_async=0)
    story.submit()  # of version 3
    story.accept()
    story.tell("batch.leased", OTHER, step=5, groups=[])
    story.tell("batch.leased", ROOT, step=4, groups=[[SUBMISSION, 0]])
    assert "batch.leased" not in types(story, SUBMISSION)


def test_what_came_in_after_the_deadline_is_not_the_tasks() -> None:
    story = Story()
    story.tell("task.leased", TASK, node=NODE, deadline=60)
    story.tell("task.expired", TASK, node=NODE)
    story.tell("submission.received", OTHER, task_id="0x" + "06" * 32)
    story.tell("submission.received", SUBMISSION, task_id=TASK)
    assert types(story, TASK) == ["task.leased", "task.expired"]


def test_what_came_in_by_a_renewed_deadline_is_the_tasks() -> None:
    story = Story()
    story.tell("task.leased", TASK, node=NODE, deadline=60)
    story.tell("task.renewed", TASK, node=NODE, deadline=130)
    story.tell("submission.received", SUBMISSION, task_id=TASK)
    assert types(story, TASK) == ["task.leased", "task.renewed", "submission.received"]
    late = Story()
    late.tell("task.leased", TASK, node=NODE, deadline=60)
    late.tell("task.renewed", TASK, node=NODE, deadline=110)
    late.tell("submission.received", SUBMISSION, task_id=TASK)
    assert types(late, TASK) == ["task.leased", "task.renewed"]


def test_copies_that_a_reorg_voids_count_for_nothing_and_later_ones_do() -> None:
    story = Story()
    story.submit()
    kept, dropped = story.copy("AllotmentHeld", block=5), story.copy("Accused", block=8)
    story.tell("chain.reorged", fork_block=7)
    again = story.copy("Accused", block=8)
    story.tell("chain.reorged", fork_block=90)
    found = related_events(story, SUBMISSION)
    assert [event.type for event in found.events].count("chain.reorged") == 1
    assert [event for event in standing_events(found.events) if event.is_chain_copy] == [kept, again]
    assert dropped in found.events


def test_leaves_that_belong_to_the_story_are_known_as_such() -> None:
    story = Story()
    story.submit()
    story.accept()
    story.copy("Accused")
    story.tell("batch.leased", ROOT, step=4, groups=[[SUBMISSION, 0]])
    found = related_events(story, SUBMISSION)
    belonging = [
        story.tell("group.unused", SUBMISSION),
        story.tell("task.expired", TASK),
        story.tell("submission.received", OTHER, task_id=TASK),
        story.tell("batch.leased", OTHER, groups=[[SUBMISSION, 1]]),
        story.tell("batch.consumed", ROOT),
        story.tell("chain.reorged", fork_block=6),
    ]
    others = [
        story.tell("group.unused", OTHER),
        story.tell("submission.received", OTHER, task_id=OTHER),
        story.tell("batch.leased", OTHER, groups=[[OTHER, 1]]),
        story.tell("batch.consumed", OTHER),
        story.tell("chain.reorged", fork_block=7),
    ]
    assert all(found.includes(event) for event in (*found.events, *belonging))
    assert not any(found.includes(event) for event in others)


def test_zero_is_nobodys_task_and_an_endless_subject_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.tell("submission.received", SUBMISSION, task_id=ZERO_HASH)
    story.tell("epoch.closed", ZERO_HASH)
    assert types(story, SUBMISSION) == ["submission.received"]
    monkeypatch.setattr(events, "MAX_RELATED", 3)
    for _ in range(4):
        story.tell("group.unused", SUBMISSION)
    with pytest.raises(VerificationFailed, match="too much"):
        related_events(story, SUBMISSION)


class Endless(Story):
    """Serves leaves of a type without end, none of which is about anything that was asked for."""

    def of_type(self, event_type: str, start: int) -> Iterator[LogEvent]:
        data = {"step": 0, "groups": []} if event_type == BATCHED else {"fork_block": 10**9}
        for index in count(start):
            yield LogEvent.of(EVENT | {"index": index, "type": event_type, "subject": ROOT, "data": data})


@pytest.mark.parametrize("copies", [False, True])
def test_leaves_of_a_type_without_end_are_refused(copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def story(made: type[Story]) -> Story:
        told = made()
        told.submit()
        if copies:
            told.copy("Accused", SUBMISSION)
        else:
            told.accept()
        return told

    monkeypatch.setattr(events, "MAX_OF_TYPE", 50)
    assert len(related_events(story(Story), SUBMISSION).events) == 3
    with pytest.raises(VerificationFailed, match=f"too many {REORGED if copies else BATCHED}"):
        related_events(story(Endless), SUBMISSION)


def test_times_are_utc_as_far_as_calendars_go() -> None:
    assert utc(0) == "1970-01-01 00:00:00 UTC"
    assert utc(253402300799) == "9999-12-31 23:59:59 UTC"
    assert utc(2**53 - 1) == f"chain time {2**53 - 1}"
