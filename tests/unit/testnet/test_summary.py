"""How a run's summary reads."""

from __future__ import annotations

import io

from rich.console import Console

from protocol.signing import checksummed
from testnet.summary import Summary, print_summary
from tests.unit.testnet.summaries import SUMMARY


def printed(summary: Summary) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out))
    return out.getvalue()


def test_the_slashed_are_named_and_credits_keep_every_digit() -> None:
    audited = [f"0x{number:064x}" for number in range(4)]
    changes = {"audited": audited, "credits_paid_wei": "0", "credits_owed_wei": "14678400000000000001"}
    text = printed(SUMMARY.model_copy(update=changes))
    assert f"worker-1 (wrong-model): provider {checksummed(SUMMARY.slashed[0])}" in text
    assert "0 paid, 14.678400000000000001 owed" in text
    assert text.count("audit verify") == 2
    assert "and 2 more bundles there" in text


def test_a_run_passes_only_if_all_its_checks_hold() -> None:
    assert SUMMARY.passed
    failed = SUMMARY.model_copy(update={"checks": {"all steps taken": True, "audit": False}})
    assert not failed.passed
    assert "✗ audit" in printed(failed)


def test_nobody_slashed_is_said() -> None:
    assert "slashed         nobody" in printed(SUMMARY.model_copy(update={"slashed": [], "cheaters": []}))
