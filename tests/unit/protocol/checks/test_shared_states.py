"""Where rounding moves a value of the prompt's last state, each rollout of its group shows it: one observation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.checks.toploc import check_exponents
from protocol.reasons import Outcome
from protocol.rules import Rules
from protocol.toploc.pooled import ProofErrors
from protocol.wire import CheckResult
from testnet.plan import BASE_MODEL
from testnet.rules import testnet_rules as rules_of


@pytest.fixture(scope="module")
def rules() -> Rules:
    return rules_of(BASE_MODEL)


@pytest.fixture
def judge(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The check of a file with so many chunks and mismatches."""

    def make(num_chunks: int, num_mismatches: int) -> CheckResult:
        errors = ProofErrors(num_chunks=num_chunks, num_values=128 * num_chunks, num_mismatches=num_mismatches)
        found = SimpleNamespace(proofs=errors)
        monkeypatch.setattr("protocol.checks.toploc.measurements_of", lambda case: found)
        return check_exponents(SimpleNamespace(rules=rules))  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize("num_chunks", [64, 72, 128])
def test_one_value_of_a_shared_state_is_no_forgery(judge: Any, rules: Rules, num_chunks: int) -> None:
    assert judge(num_chunks, rules.group_size).outcome == Outcome.ACCEPT


@pytest.mark.parametrize("num_chunks", [64, 72, 128])
def test_two_of_them_are_refused_and_some_more_are_slashed(judge: Any, rules: Rules, num_chunks: int) -> None:
    expected = 0.0005 * 128 * num_chunks
    assert judge(num_chunks, int(expected + 2 * rules.group_size)).outcome == Outcome.DROP
    assert judge(num_chunks, int(2 * expected + 3 * rules.group_size)).outcome == Outcome.SLASH
