"""The two axes of a submission's life: every move is in the table, every other one raises."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from coordinator import standing, use
from coordinator.db.work import GroupRow, TaskRow
from protocol.api import Standing, Use
from protocol.errors import ProofpoolError


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Standing, Standing)))
def test_no_standing_moves_to_itself_or_back_to_leased(old: Standing, new: Standing) -> None:
    if new in (old, Standing.LEASED):
        assert not standing.can_move(old, new)


def test_only_disputes_and_challenges_lead_away_from_a_decision() -> None:
    for ended in (Standing.ACCEPTED, Standing.REJECTED):
        assert standing.MOVES[ended] == {Standing.CHALLENGED}
    for lost in (Standing.EXPIRED, Standing.ABANDONED, Standing.REORGED):
        assert not standing.MOVES[lost]


def test_a_move_that_isnt_in_the_table_raises_and_changes_nothing(site: Any) -> None:
    site.lease()
    before = site.dump()
    with pytest.raises(ProofpoolError, match="can't move"), site.coordinator.writing() as session:
        standing.move(session, session.query(TaskRow).one(), Standing.ACCEPTED)
    assert site.dump() == before


def test_a_group_is_used_once(site: Any) -> None:
    group = GroupRow(submission_id="0x", group=0, use=None)
    for step in (Use.PENDING, Use.BATCHED, Use.CONSUMED):
        use.move(group, step)
    for step in Use:
        with pytest.raises(ProofpoolError):
            use.move(group, step)
