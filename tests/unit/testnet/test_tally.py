"""Counting a run from its log."""

from __future__ import annotations

from typing import Any

from protocol.api import LogEntry
from protocol.wire import ZERO_HASH
from testnet.tally import Tally

NODE, OTHER, OWNER = "0x" + "0a" * 20, "0x" + "0b" * 20, "0x" + "0c" * 20
FIRST, SECOND = "0x" + "01" * 32, "0x" + "02" * 32
FIRST_TASK, SECOND_TASK, THIRD_TASK = "0x" + "11" * 32, "0x" + "12" * 32, "0x" + "13" * 32


def tally_of(*events: tuple[str, str, dict[str, Any]]) -> Tally:
    tally = Tally()
    for index, (name, subject, data) in enumerate(events):
        event = {"index": index, "type": name, "subject": subject, "time": 0, "data": data}
        tally.count(LogEntry(index=index, subject=subject, event_hash=ZERO_HASH, leaf_hash=ZERO_HASH, event=event))
    return tally


def test_submissions_are_counted_by_node_and_reason() -> None:
    tally = tally_of(
        ("submission.received", FIRST, {"node": NODE, "task_id": FIRST_TASK}),
        ("submission.received", SECOND, {"node": OTHER, "task_id": SECOND_TASK}),
        ("submission.accepted", FIRST, {"node": NODE, "task_id": FIRST_TASK, "amount_wei": "7"}),
        ("submission.rejected", SECOND, {"node": OTHER, "task_id": SECOND_TASK, "reason": "toploc_mismatch"}),
    )
    assert (tally.accepted, tally.rejected, tally.rejected_by_reason) == (1, 1, {"toploc_mismatch": 1})
    assert (tally.node(NODE).earned_wei, tally.node(NODE).settled, tally.node(OTHER).earned_wei) == (7, 1, 0)


def test_work_at_hand_and_work_to_be_judged_are_told_apart() -> None:
    events: list[tuple[str, str, dict[str, Any]]] = [
        ("task.leased", FIRST_TASK, {"node": NODE}),
        ("task.leased", SECOND_TASK, {"node": NODE}),
        ("task.leased", THIRD_TASK, {"node": OTHER}),
        ("submission.received", FIRST, {"node": NODE, "task_id": FIRST_TASK}),
        ("task.expired", SECOND_TASK, {"node": NODE}),
        ("task.abandoned", THIRD_TASK, {"node": OTHER}),
        ("submission.accepted", FIRST, {"node": NODE, "task_id": FIRST_TASK, "amount_wei": "7"}),
    ]
    expected = [(1, 0), (2, 0), (3, 0), (2, 1), (1, 1), (0, 1), (0, 0)]
    seen = [tally_of(*events[: n + 1]) for n in range(len(events))]
    assert [(tally.working, tally.unsettled) for tally in seen] == expected
    assert (seen[-1].leased, seen[-1].expired) == (3, 1)


def test_a_reorged_task_is_waited_for_by_nobody() -> None:
    tally = tally_of(
        ("task.leased", FIRST_TASK, {"node": NODE}),
        ("submission.received", FIRST, {"node": NODE, "task_id": FIRST_TASK}),
        ("task.reorged", FIRST_TASK, {"node": NODE}),
    )
    assert (tally.working, tally.unsettled) == (0, 0)


def test_steps_weights_and_slashes_are_seen() -> None:
    slash = {"arguments": {"provider": OWNER, "amount": "5", "submission_id": SECOND}}
    tally = tally_of(
        ("weights.announced", FIRST, {"policy_version": 0}),
        ("batch.leased", FIRST, {"number": 0}),
        ("batch.consumed", FIRST, {"step": 1}),
        ("chain.Accused", SECOND, {"arguments": {"provider": OWNER}}),
        ("weights.announced", FIRST, {"policy_version": 1}),
        ("chain.Slashed", SECOND, slash),
        ("epoch.closed", ZERO_HASH, {"epoch": 0}),
    )
    assert (tally.step, tally.policy_version, tally.epochs, tally.batches) == (1, 1, 1, 1)
    assert tally.accused == {OWNER}
    assert (tally.slashed, tally.slashed_ids) == ({OWNER: 5}, [SECOND])


def test_unknown_events_change_nothing() -> None:
    assert tally_of(("something.else", FIRST, {})) == Tally()
