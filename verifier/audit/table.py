"""Tables for a terminal: columns as wide as they have to be, numbers to the right.

In: rows of cells, the first being the header. Out: lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MAX_WIDTH = 100
"""What the reports' tables fit."""


def table(rows: Sequence[Sequence[str]], num_texts: int = 1) -> Iterator[str]:
    """The first `num_texts` columns stand to the left.

    >>> list(table([("node", "leased"), ("N1", "12")]))
    ['node  leased', 'N1        12']
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < num_texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def share(part: int, whole: int) -> str:
    """In percent; a dash where there is nothing to divide.

    >>> share(1, 8), share(0, 0)
    ('12.5%', '-')
    """
    return f"{part / whole:.1%}" if whole else "-"
