"""How a run's summary reads."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from testnet.summary import Summary, print_summary

OWNER, CHEATER = "0x" + "0a" * 20, "0x" + "0b" * 20


@pytest.fixture
def make_summary() -> Any:
    def make(**changes: Any) -> Summary:
        values: dict[str, Any] = {
            "seed": 0,
            "steps": 12,
            "chain": "anvil",
            "accepted": 5,
            "rejected": 1,
            "rejected_by_reason": {"toploc_mismatch": 1},
            "honest_rejected": 0,
            "expired": 0,
            "restarted": [],
            "slashed": [CHEATER],
            "cheaters": [CHEATER],
            "names": {OWNER: "worker-0", CHEATER: "worker-1 (wrong-model)"},
            "reward_first": 0.25,
            "reward_last": 0.5,
            "policy_version": 12,
            "ledger_root": "0x" + "0c" * 32,
            "credits_paid_wei": "0",
            "credits_owed_wei": "14678400000000000001",
            "audit": "ok",
            "audited": [f"0x{number:064x}" for number in range(4)],
            "trusted_head": "3:40:0x" + "0c" * 32,
            "first_accept_seconds": 30.0,
            "wall_seconds": 100.0,
            "run_dir": "/runs/1",
            "checks": {"all steps taken": True, "audit": True},
        }
        return Summary.model_validate(values | changes)

    return make


def printed(summary: Summary) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out))
    return out.getvalue()


def test_the_slashed_are_named_and_credits_keep_every_digit(make_summary: Any) -> None:
    text = printed(make_summary())
    assert "worker-1 (wrong-model): provider 0x0B0b" in text
    assert "0 paid, 14.678400000000000001 owed" in text
    assert text.count("audit verify") == 2
    assert "and 2 more bundles there" in text


def test_a_run_passes_only_if_all_its_checks_hold(make_summary: Any) -> None:
    assert make_summary().passed
    failed = make_summary(checks={"all steps taken": True, "audit": False})
    assert not failed.passed
    assert "✗ audit" in printed(failed)


def test_nobody_slashed_is_said(make_summary: Any) -> None:
    assert "slashed         nobody" in printed(make_summary(slashed=[], cheaters=[]))
