"""Refusals at the door are logged: who and why, at most one leaf an epoch, however many knock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from coordinator.db.log import Event
from coordinator.door import MAX_ROWS, REFUSED, counting_refusals, log_refusals
from coordinator.epochs import close_epoch
from coordinator.refusals import MAX_KEYS, NOBODY, Door, Key, Refusals
from protocol.errors import Rejected
from protocol.reasons import RejectReason
from protocol.signing import Signer

STRANGER = Signer((77).to_bytes(32, "big"))


def leaves(site: Any) -> list[tuple[str, dict[str, Any]]]:
    with site.coordinator.reading() as session:
        events = session.scalars(select(Event).order_by(Event.index))
        return [(event.type, json.loads(event.document)["data"]) for event in events]


def refuse(site: Any, node: Signer | None = None, times: int = 1) -> None:
    """Ask for a version that isn't there."""
    for _ in range(times):
        with pytest.raises(Rejected):
            site.client(node or site.node).lease(9)


def logged(site: Any, counts: Any) -> dict[str, Any]:
    with site.coordinator.writing() as session:
        log_refusals(session, 7, counts)
    return leaves(site)[-1][1]


@pytest.fixture
def busy(site: Any) -> Iterator[Any]:
    """With a leaf in its open epoch."""
    site.lease()
    yield site


def test_an_epoch_says_who_was_refused_and_why(busy: Any) -> None:
    refuse(busy, times=2)
    refuse(busy, STRANGER, times=3)
    close_epoch(busy.coordinator, forced=True)
    *_, (kind, data), (last, _) = leaves(busy)
    assert (kind, last) == (REFUSED, "epoch.closed")
    assert data == {
        "epoch": 0,
        "leases": [[busy.node.address, "stale_policy", 2]],
        "submissions": [],
        "others": {"leases": {"not_registered": 3}, "submissions": {}},
    }


def test_an_epoch_in_which_nobody_was_refused_says_nothing(busy: Any) -> None:
    close_epoch(busy.coordinator, forced=True)
    assert [kind for kind, _ in leaves(busy)] == ["task.leased", "epoch.closed"]


def test_refused_submissions_are_counted_by_themselves(busy: Any) -> None:
    (leased,) = busy.client(busy.node).open_tasks()
    envelope, submission_id, file = busy.pack(leased.message)
    assert busy.put(envelope, submission_id, file + b"x").status_code == 400
    close_epoch(busy.coordinator, forced=True)
    assert leaves(busy)[-2][1]["submissions"] == [[busy.node.address, "file_mismatch", 1]]


def test_what_is_logged_once_isnt_logged_again(busy: Any) -> None:
    refuse(busy)
    before = busy.coordinator.refusals.counts()
    refuse(busy)
    busy.coordinator.refusals.forget(before)
    key = Key(Door.LEASES, busy.node.address, "stale_policy")
    assert busy.coordinator.refusals.counts() == {key: 1}
    busy.coordinator.refusals.forget({key: 1})
    assert busy.coordinator.refusals.counts() == {}


def test_an_epoch_that_isnt_closed_forgets_nothing(site: Any) -> None:
    refuse(site)
    close_epoch(site.coordinator, forced=True)  # the log is empty
    assert site.coordinator.refusals.counts().total() == 1


def test_another_error_is_no_refusal(site: Any) -> None:
    with pytest.raises(ZeroDivisionError), counting_refusals(site.coordinator, Door.LEASES, site.node.address):
        raise ZeroDivisionError
    assert site.coordinator.refusals.counts() == {}


def test_a_node_without_enough_stake_gets_no_row(site: Any) -> None:
    site.add_node(STRANGER.address, provider="0x" + "02" * 20, allotment_wei=99)
    with pytest.raises(Rejected), counting_refusals(site.coordinator, Door.LEASES, STRANGER.address):
        raise Rejected(RejectReason.LEASE_LIMIT, "")
    assert set(site.coordinator.refusals.counts()) == {Key(Door.LEASES, NOBODY, "lease_limit")}


def test_many_nodes_make_no_long_leaf_and_crowd_nobody_out(site: Any) -> None:
    """A provider with a hundred nodes, each refused a thousand times, beside one with a single node, refused once."""
    counts = {}
    for number in range(100):
        node = f"0x{number + 1:040x}"
        site.add_node(node, provider="0x" + "0a" * 20)
        counts[Key(Door.LEASES, node, "lease_limit")] = 1_000
    counts[Key(Door.LEASES, site.node.address, "no_demand")] = 1
    data = logged(site, counts)
    assert len(data["leases"]) == MAX_ROWS
    assert [site.node.address, "no_demand", 1] in data["leases"]
    assert sum(row[2] for row in data["leases"]) + data["others"]["leases"]["lease_limit"] == 100_001


def test_nobody_is_left_out_in_every_epoch(site: Any) -> None:
    counts = {}
    for number in range(MAX_ROWS + 1):
        node = f"0x{number + 1:040x}"
        site.add_node(node, provider=f"0x{number + 0xA00:040x}")
        counts[Key(Door.LEASES, node, "lease_limit")] = 1
    left_out = set()
    for epoch in range(8):
        with site.coordinator.writing() as session:
            log_refusals(session, epoch, counts)
        left_out |= {key.node for key in counts} - {row[0] for row in leaves(site)[-1][1]["leases"]}
    assert len(left_out) > 1


def test_a_node_that_a_reorg_took_away_holds_no_epoch_up(site: Any) -> None:
    data = logged(site, {Key(Door.LEASES, STRANGER.address, "lease_limit"): 2})
    assert (data["leases"], data["others"]["leases"]) == ([], {"lease_limit": 2})


def test_the_order_of_refusals_doesnt_matter(site: Any) -> None:
    counts = {Key(Door.LEASES, site.node.address, reason): 1 for reason in ("no_demand", "lease_limit", "stale_policy")}
    assert logged(site, counts) == logged(site, dict(reversed(counts.items())))


def test_memory_is_bounded() -> None:
    refusals = Refusals()
    for number in range(MAX_KEYS + 5):
        refusals.note(Key(Door.LEASES, f"0x{number:040x}", "lease_limit"))
    assert len(refusals.counts()) == MAX_KEYS + 1
    assert refusals.counts()[Key(Door.LEASES, NOBODY, "lease_limit")] == 5
