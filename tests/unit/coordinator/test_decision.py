"""What verdicts add up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.decision import Opinion, decide
from protocol.reasons import Outcome

ACCEPT = Opinion(Outcome.ACCEPT)
DROP = Opinion(Outcome.DROP, "toploc_mismatch")
LATE = Opinion(Outcome.DROP, "termination_invalid")
SLASH = Opinion(Outcome.SLASH, "toploc_mismatch")

CASES = [
    ([], None, 1, None),
    ([ACCEPT], True, 1, None),
    ([DROP], False, 1, "toploc_mismatch"),
    ([SLASH], None, 2, None),
    ([SLASH, SLASH], False, 2, "toploc_mismatch"),
    ([SLASH, DROP], False, 2, "toploc_mismatch"),
    ([ACCEPT, DROP], None, 3, None),
    ([ACCEPT, SLASH], None, 3, None),
    ([ACCEPT, SLASH, SLASH], False, 3, "toploc_mismatch"),
    ([ACCEPT, SLASH, ACCEPT], True, 3, None),
    ([ACCEPT, ACCEPT, DROP, DROP], None, 5, None),
    ([LATE, DROP, DROP], False, 1, "toploc_mismatch"),
    ([LATE, DROP], False, 1, "termination_invalid"),
]


@pytest.mark.parametrize(("opinions", "accepted", "num_needed", "reason"), CASES)
def test_decisions(opinions: list[Opinion], accepted: bool | None, num_needed: int, reason: str | None) -> None:
    decision = decide(opinions, accept_quorum=1, slash_quorum=2)
    assert (decision.accepted, decision.num_needed, decision.reason) == (accepted, num_needed, reason)


OPINIONS = st.lists(st.sampled_from([ACCEPT, DROP, LATE, SLASH]), max_size=9)
QUORUM = st.integers(1, 3)


@given(OPINIONS, QUORUM, QUORUM)
def test_what_nobody_accepted_isnt_accepted(opinions: list[Opinion], accept: int, slash: int) -> None:
    decision = decide(opinions, accept, slash)
    accepts = sum(opinion.accepts for opinion in opinions)
    if decision.accepted:
        assert accepts > len(opinions) - accepts
        assert accepts >= min(accept, len(opinions))
    if decision.accepted is False:
        assert len(opinions) - accepts > accepts
        assert decision.reason is not None


@given(OPINIONS, QUORUM, QUORUM)
def test_whoever_waits_asks_for_more_than_there_are(opinions: list[Opinion], accept: int, slash: int) -> None:
    decision = decide(opinions, accept, slash)
    assert (decision.accepted is None) == (len(opinions) < decision.num_needed)


@given(OPINIONS, QUORUM)
def test_nobody_slashes_alone(opinions: list[Opinion], accept: int) -> None:
    decision = decide(opinions, accept, slash_quorum=2)
    if decision.accepted is False and any(opinion.outcome is Outcome.SLASH for opinion in opinions):
        assert sum(not opinion.accepts for opinion in opinions) >= 2
