"""The draw of audited rollouts: all or a share, even, and nobody's choice."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.checks.audit_rows import drawn_rollouts, num_drawn
from protocol.rules import AuditRules

BEACON, SUBMISSION = "0x" + "be" * 32, "0x" + "5b" * 32
HALF = AuditRules(policy="sampled", share=0.5)


@given(st.integers(1, 200), st.floats(0.001, 1), st.integers(1, 20), st.integers(0, 2))
def test_distinct_rollouts_of_the_task_in_order(num_rollouts: int, share: float, least: int, round_number: int) -> None:
    rules = AuditRules(policy="sampled", share=share, min_rollouts=least)
    drawn = drawn_rollouts(rules, num_rollouts, BEACON, SUBMISSION, round_number)
    assert len(drawn) == num_drawn(rules, num_rollouts) >= min(num_rollouts, least, 1)
    assert list(drawn) == sorted(set(drawn)) and drawn[0] >= 0 and drawn[-1] < num_rollouts


@pytest.mark.parametrize(("share", "least", "expected"), [(0.1, 1, 7), (0.1, 8, 8), (1.0, 1, 64), (0.001, 1, 1)])
def test_how_many_are_drawn_of_64(share: float, least: int, expected: int) -> None:
    assert num_drawn(AuditRules(policy="sampled", share=share, min_rollouts=least), 64) == expected


def test_all_is_all() -> None:
    assert drawn_rollouts(AuditRules(share=0.1), 5, BEACON, SUBMISSION, 0) == (0, 1, 2, 3, 4)


def test_every_beacon_submission_and_round_draws_others() -> None:
    draws = {
        drawn_rollouts(HALF, 64, BEACON, SUBMISSION, 0),
        drawn_rollouts(HALF, 64, "0x" + "bf" * 32, SUBMISSION, 0),
        drawn_rollouts(HALF, 64, BEACON, "0x" + "5c" * 32, 0),
        drawn_rollouts(HALF, 64, BEACON, SUBMISSION, 1),
    }
    assert len(draws) == 4
    assert drawn_rollouts(HALF, 64, BEACON, SUBMISSION, 0) in draws


def test_rollouts_are_drawn_evenly() -> None:
    counts: Counter[int] = Counter()
    for number in range(2000):
        counts.update(drawn_rollouts(HALF, 8, BEACON, f"0x{number:064x}", 0))
    assert set(counts) == set(range(8)) and all(abs(count - 1000) < 120 for count in counts.values())
