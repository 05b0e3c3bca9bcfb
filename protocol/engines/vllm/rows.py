"""Whose row of vLLM's batch is which: vLLM adds, removes and moves rows between steps, and says so.

In: the changes of a step, in vLLM's order: removed, then added, then moved. Out: what was put at each row. Nothing
here needs vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class RowTable(Generic[T]):
    """Row number of the batch to whatever the row's request is known by here; None where it isn't of our making.

    Example: `table.update(removed=[2], added=[(0, a), (1, None)], moved=[(3, 2, False)])`.
    """

    def __init__(self) -> None:
        self._rows: dict[int, T] = {}

    def update(
        self, removed: Iterable[int], added: Iterable[tuple[int, T | None]], moved: Iterable[tuple[int, int, bool]]
    ) -> None:
        """One step's changes. `moved`: (from, to, whether the two change places); else `from` is empty after it."""
        for row in removed:
            self._rows.pop(row, None)
        for row, entry in added:
            self._put(row, entry)
        for source, target, is_swap in moved:
            before, other = self._rows.pop(source, None), self._rows.pop(target, None)
            self._put(target, before)
            if is_swap:
                self._put(source, other)

    def entries(self) -> list[tuple[int, T]]:
        """Rows with an entry, in order."""
        return sorted(self._rows.items(), key=lambda row: row[0])

    def _put(self, row: int, entry: T | None) -> None:
        """A row that is given to somebody else is no longer its former request's."""
        self._rows.pop(row, None)
        if entry is not None:
            self._rows[row] = entry
