"""The days of a statement, as people write them."""

from __future__ import annotations

import pytest

from protocol.errors import UsageError
from worker.provider.statement_table import period_of


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2026-11-01", "2026-11-01", (1_793_491_200, 1_793_577_600)),
        ("2026-11-01T08:30", "2026-11-01T08:30:01", (1_793_521_800, 1_793_521_801)),
        ("1800-01-01", "9999-12-31", (0, 253_402_300_800)),
    ],
)
def test_a_day_as_an_end_is_within(start: str, end: str, seconds: tuple[int, int]) -> None:
    period = period_of(start, end)
    assert (period.start, period.end) == seconds
    assert period.has(seconds[0]) and period.has(seconds[1] - 1) and not period.has(seconds[1])


@pytest.mark.parametrize("text", ["", "nan", "0", "10000-01-01", "2026-02-30", "２０２６-01-01", " 2026-11-01 "])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no day"):
        period_of(None, text)
