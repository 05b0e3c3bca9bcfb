"""The matrix as Markdown tables: one line an attack.

In: lines. Out: text for docs/verification.md.
"""

from __future__ import annotations

import math

from tests.attacks.matrix import Line
from tests.attacks.shares import Share

HEAD = "| attack | what differs | rollouts | caught alone | caught per file of 64 | by | value (limit) | outcome |"


def row(line: Line) -> str:
    by = f"`{line.check}`: {line.reason}" if line.check else "–"
    value = "" if line.value is None else f"{line.value:.3g} ({line.limit:.2g})"
    rollouts = f"{line.num_altered} of {line.num_rollouts}"
    cells = (line.attack, line.lie, rollouts, _share(line.rollouts), _share(line.submissions), by, value, line.outcome)
    return f"| {' | '.join(cells)} |"


def _share(share: Share) -> str:
    if math.isnan(share.share):
        return "–"
    low, high = _percent(share.low), _percent(share.high)
    return f"{_percent(share.share)} % ({low}–{high})"


def _percent(share: float) -> str:
    """Never rounded up to 100, nor down to 0."""
    for text, bound in (("100", 1.0), ("0", 0.0)):
        if share == bound:
            return text
    return f"{min(99.9, max(0.1, 100 * share)):.1f}"
