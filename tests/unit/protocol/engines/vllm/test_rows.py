"""Rows of a batch that come, go and move: the table says the same as a list that is moved about literally."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.engines.vllm.rows import RowTable

NUM_ROWS = 6
ROWS = st.integers(0, NUM_ROWS - 1)
CHANGES = st.tuples(
    st.lists(ROWS, max_size=2),
    st.lists(st.tuples(ROWS, st.one_of(st.none(), st.integers(0, 99))), max_size=3),
    st.lists(st.tuples(ROWS, ROWS, st.booleans()).filter(lambda m: m[0] != m[1]), max_size=3),
)


def literally(rows: list[int | None], changes: tuple[list[int], list[tuple[int, int | None]], list[tuple]]) -> None:
    removed, added, moved = changes
    for row in removed:
        rows[row] = None
    for row, entry in added:
        rows[row] = entry
    for source, target, is_swap in moved:
        rows[target], rows[source] = rows[source], rows[target] if is_swap else None


@given(st.lists(CHANGES, max_size=8))
def test_the_table_follows_every_change(steps: list[tuple]) -> None:
    table: RowTable[int] = RowTable()
    rows: list[int | None] = [None] * NUM_ROWS
    for removed, added, moved in steps:
        table.update(removed, added, moved)
        literally(rows, (removed, added, moved))
        assert table.entries() == [(row, entry) for row, entry in enumerate(rows) if entry is not None]


def test_a_row_that_somebody_else_takes_over_is_forgotten() -> None:
    table: RowTable[str] = RowTable()
    table.update([], [(0, "a"), (1, "b"), (2, "c")], [])
    table.update([], [(0, None)], [(2, 1, False)])
    assert table.entries() == [(1, "c")]
