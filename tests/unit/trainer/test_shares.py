"""How bins are dealt over ranks: each once, in rounds of equal cost, as many for every rank."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from trainer.ranks import Ranks

COSTS = st.lists(st.floats(0, 1e9), max_size=40)


def dealt(costs: Sequence[float], size: int) -> list[list[int]]:
    return [Ranks(rank, size).share(range(len(costs)), costs, -1) for rank in range(size)]


@given(COSTS, st.integers(2, 9))
def test_each_item_is_one_ranks_and_all_have_as_many(costs: list[float], size: int) -> None:
    shares = dealt(costs, size)
    assert len({len(share) for share in shares}) == 1
    assert sorted(item for share in shares for item in share if item >= 0) == list(range(len(costs)))
    assert sum(share.count(-1) for share in shares) < size


@given(COSTS, st.integers(2, 9))
def test_no_round_costs_less_than_one_after_it(costs: list[float], size: int) -> None:
    rounds = list(zip(*dealt(costs, size), strict=True))
    for earlier, later in zip(rounds, rounds[1:], strict=False):
        assert min(costs[item] for item in earlier) >= max(costs[item] for item in later if item >= 0)


@given(COSTS)
def test_alone_order_and_number_stay(costs: list[float]) -> None:
    """Sums of a single process are to the bit what they were."""
    assert Ranks().share(range(len(costs)), costs, -1) == list(range(len(costs)))
