"""What a claim says to people of what isn't paid now."""

from __future__ import annotations

import pytest

from worker.provider.claiming import LaterEarnings, PoolEarnings, lines_of

CREDIT = 10**18


def earnings(num_later: int, *, last_is_held: bool = False) -> PoolEarnings:
    later = [LaterEarnings(epoch=7 + n, amount_wei=CREDIT, claimable_time=86_400 * (n + 1)) for n in range(num_later)]
    if last_is_held:
        later[-1] = later[-1].model_copy(update={"claimable_time": None})
    return PoolEarnings(
        pool_id=1,
        token="0x" + "11" * 20,
        epoch=6,
        earned_wei=0,
        claimed_wei=0,
        withheld_wei=0,
        claimable_wei=0,
        withheld=(),
        later=tuple(later),
        faults=(),
    )


@pytest.mark.parametrize("num_later", [0, 1, 2])
def test_few_payouts_are_said_one_by_one(num_later: int) -> None:
    lines = lines_of(earnings(num_later))
    assert len(lines) == num_later
    assert all(line.startswith("pool 1: 1 more can be claimed from 1970-01-0") for line in lines)


def test_many_payouts_are_said_in_one_line() -> None:
    (line,) = lines_of(earnings(11))
    assert line == (
        "pool 1: 11 more in 11 payouts: the first 1 from 1970-01-02 00:00:00 UTC on, "
        "the last from 1970-01-12 00:00:00 UTC on (earnings of epochs 7 to 17)"
    )
    (line,) = lines_of(earnings(3, last_is_held=True))
    assert "the last once a dispute is over" in line
