"""Reject reasons: numbers that never move, a cost and a hint for each."""

from __future__ import annotations

from protocol.errors import Rejected
from protocol.reasons import SLASHABLE_MASK, Cost, RejectReason


def test_each_reason_has_its_own_code_and_a_hint() -> None:
    assert len({reason.code for reason in RejectReason}) == len(RejectReason)
    assert all(reason.hint and RejectReason.from_code(reason.code) is reason for reason in RejectReason)


def test_only_forgery_can_be_slashed() -> None:
    slashable = {reason.value for reason in RejectReason if reason.cost is Cost.SLASH}
    assert slashable == {"proof_malformed", "toploc_mismatch", "sampling_mismatch", "wrong_prompts", "reward_mismatch"}
    assert all(SLASHABLE_MASK >> reason.code & 1 == (reason.cost is Cost.SLASH) for reason in RejectReason)


def test_a_refusal_says_what_why_and_what_to_do() -> None:
    error = Rejected(RejectReason.TOO_LARGE, "file of a task", value="9", threshold="8")
    assert (error.exit_code, error.what, error.why) == (7, "refused: too_large", "file of a task; 9 against 8")
    assert error.todo == RejectReason.TOO_LARGE.hint
