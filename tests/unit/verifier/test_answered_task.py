"""Whether a task is the one that a submission answers: each field that both name, and the chain's beacon."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import VerificationFailed
from protocol.wire import Submission, Task
from verifier.case import check_answered

BEACON = "0x" + "be" * 32
OTHER = "0x" + "0e" * 32


def answered(**changes: Any) -> tuple[Task, Submission]:
    """A submission, and a task that may differ from the one that it answers."""
    shared: dict[str, Any] = {"pool_id": 1, "policy_version": 2, "node": "0x" + "aa" * 20, "counter": 3}
    shared["rules_hash"] = "0x" + "44" * 32
    leased = {"beacon_block": 9, "beacon_hash": BEACON, "price_wei": 1, "max_units": 4, "deadline": 5}
    return Task(**(shared | leased | changes)), Submission(**shared, content_hash="0x" + "cc" * 32)


def test_a_task_and_its_answer_agree_under_the_chains_beacon() -> None:
    check_answered(*answered(price_wei=7, deadline=8), BEACON)


@pytest.mark.parametrize("name", ["pool_id", "policy_version", "node", "counter", "rules_hash"])
def test_what_answers_another_task_is_told_by_the_field(name: str) -> None:
    other = {"node": "0x" + "ab" * 20, "rules_hash": OTHER}.get(name, 9)
    with pytest.raises(VerificationFailed, match=f"differ in {name}"):
        check_answered(*answered(**{name: other}), BEACON)


@pytest.mark.parametrize("on_chain", [OTHER, None])
def test_a_beacon_that_the_chain_doesnt_have_is_refused(on_chain: str | None) -> None:
    with pytest.raises(VerificationFailed, match="beacon isn't the chain's"):
        check_answered(*answered(), on_chain)
    with pytest.raises(VerificationFailed, match="beacon isn't the chain's"):
        check_answered(*answered(beacon_hash="0x" + "00" * 32), on_chain)
