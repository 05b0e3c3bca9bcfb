"""Pages of the log: all of it, or the leaves of one subject or type, always in order and never more than was asked."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from protocol.api import LogEntry
from protocol.errors import Rejected
from protocol.wire import ZERO_HASH
from tests.unit.coordinator.conftest import Site


@pytest.fixture
def filled(site: Site) -> Site:
    """Two accepted submissions and a lease, in two epochs."""
    site.accept()
    site.accept()
    site.lease()
    return site


def matching(site: Site, **wanted: str) -> list[LogEntry]:
    return [e for e in site.client().all_entries() if all(e.event[name] == value for name, value in wanted.items())]


def test_filters_give_exactly_the_leaves_that_match(filled: Site) -> None:
    client, subject = filled.client(), filled.client().submissions()[0].submission_id
    about = client.entries(0, subject=subject)
    assert about == matching(filled, subject=subject) and len(about) > 3
    leased = client.entries(0, event_type="task.leased")
    assert leased == matching(filled, type="task.leased") and len(leased) == 3
    both = client.entries(0, subject=subject, event_type="verdict.revealed")
    assert both == matching(filled, subject=subject, type="verdict.revealed") and both
    committed = client.entries(0, subject=ZERO_HASH, event_type="verdict.committed")
    assert committed == matching(filled, type="verdict.committed") and committed


def test_what_matches_nothing_is_an_empty_page(filled: Site) -> None:
    client = filled.client()
    assert client.entries(0, subject="0x" + "77" * 32) == []
    assert client.entries(0, event_type="task") == []
    assert client.entries(10**6, event_type="task.leased") == []


@pytest.mark.parametrize("filters", [{"subject": "0x77"}, {"event_type": "x" * 101}])
def test_what_can_be_no_subject_or_type_is_refused(filled: Site, filters: dict[str, str]) -> None:
    with pytest.raises(Rejected):
        filled.client().entries(0, **filters)  # type: ignore[arg-type]


@pytest.mark.parametrize("filters", [{}, {"type": "verdict.committed"}, {"subject": ZERO_HASH}])
def test_a_full_page_links_to_the_next_one(filled: Site, filters: dict[str, str]) -> None:
    found: list[int] = []
    with filled.http() as http:
        answer = http.get("/v1/log/entries", params={"limit": 2, **filters})
        while True:
            assert len(answer.json()) <= 2
            found += [row["index"] for row in answer.json()]
            if "next" not in answer.links:
                break
            answer = http.get(answer.links["next"]["url"])
    assert found == [entry.index for entry in matching(filled, **filters)]


@pytest.mark.parametrize(("subject", "index"), [("0x" + "77" * 32, "ix_event_subject"), (ZERO_HASH, "ix_event_type")])
def test_both_filters_walk_the_index_of_the_rarer_one(filled: Site, subject: str, index: str) -> None:
    asked: list[tuple[str, Any]] = []
    engine = filled.coordinator.engine
    note = lambda connection, cursor, statement, parameters, *_: asked.append((statement, parameters))  # noqa: E731
    event.listen(engine, "before_cursor_execute", note)
    filled.client().entries(0, subject=subject, event_type="task.leased")
    event.remove(engine, "before_cursor_execute", note)
    statement, parameters = next(pair for pair in asked if "FROM event" in pair[0])
    with engine.connect() as connection:
        plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert plan == [plan[0]] and index in plan[0], "one index, and no sorting"
