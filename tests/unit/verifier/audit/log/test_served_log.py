"""A coordinator is asked for some leaves; what it answers instead is found, what doesn't hash is noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.api import LogEntry
from protocol.errors import VerificationFailed
from verifier.audit.log.served_log import ServedLog

FIRST, SECOND = "0x" + "01" * 32, "0x" + "02" * 32


class Served:
    """Answers as a coordinator does, or as `lie` makes of that."""

    def __init__(self, entries: list[LogEntry]) -> None:
        self.all = entries
        self.lie: Callable[[list[LogEntry]], list[LogEntry]] = lambda page: page

    def entries(
        self, start: int, limit: int, *, subject: str | None = None, event_type: str | None = None
    ) -> list[LogEntry]:
        asked = [entry for entry in self.all if entry.index >= start and subject in (None, entry.subject)]
        return self.lie([entry for entry in asked if event_type in (None, entry.event["type"])][:limit])


@pytest.fixture
def served(log: Any) -> Served:
    for index in range(450):
        log.append("task.leased" if index % 2 else "task.expired", SECOND if index % 3 else FIRST)
    return Served(log.entries)


@pytest.fixture
def asked(served: Served) -> ServedLog:
    return ServedLog(served, 2)  # type: ignore[arg-type]


def test_leaves_come_in_order_however_many_pages_they_take(asked: ServedLog, served: Served) -> None:
    assert [event.index for event in asked.about(SECOND)] == [n for n in range(450) if n % 3]
    assert [event.index for event in asked.of_type("task.leased", 100)] == list(range(101, 450, 2))
    assert asked.faults == {} and asked.leaf_hashes[1] == served.all[1].leaf_hash
    assert list(asked.about("0x" + "99" * 32)) == []


@pytest.mark.parametrize(
    "lie",
    [
        lambda page: [*page[:3], page[1]],
        lambda page: page[::-1],
        lambda page: [entry.model_copy(update={"index": entry.index + 1}) for entry in page],
    ],
)
def test_leaves_out_of_order_or_in_anothers_place_are_found(asked: ServedLog, served: Served, lie: Any) -> None:
    served.lie = lie
    with pytest.raises(VerificationFailed):
        list(asked.about(FIRST))


def test_a_coordinator_that_passes_over_filters_is_found(asked: ServedLog, served: Served) -> None:
    for ask in (lambda: asked.about(FIRST), lambda: asked.of_type("task.leased", 0)):
        served.lie = lambda page: served.all[:5]
        with pytest.raises(VerificationFailed, match="other leaves than were asked for"):
            list(ask())


def test_what_doesnt_hash_is_noted_and_the_rest_is_read(asked: ServedLog, served: Served) -> None:
    changed = served.all[3].model_copy(update={"event": served.all[3].event | {"time": 7}})
    served.all[3] = changed
    assert len(list(asked.about(FIRST))) == 150
    assert list(asked.faults) == [3] and "isn't what it says" in str(asked.faults[3])
