"""What the checks found in one file, for who asked on this machine: a document, or a table.

In: results of the checks. Out: `FileReport`, which `proofpool worker verify --json` and `proofpool verifier check
--json` print.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.checks.stages import worst
from protocol.reasons import Outcome, RejectReason
from protocol.wire import CheckResult, Hash32

Verdict = Literal["accept", "drop", "slash"]
_WORDS: dict[Outcome, Verdict] = {Outcome.ACCEPT: "accept", Outcome.DROP: "drop", Outcome.SLASH: "slash"}


class FileReport(BaseModel):
    """All results about one file, ending where a cheap check refuses it. `outcome` is what a verdict would be."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[2] = 2
    submission_id: Hash32 | None = None
    outcome: Verdict
    reason: str | None
    hint: str | None
    checks: tuple[CheckResult, ...]

    @classmethod
    def of(cls, results: Sequence[CheckResult], submission_id: str | None = None) -> FileReport:
        decisive = worst(results)
        reason = RejectReason(decisive.reason) if decisive.reason else None
        return cls(
            submission_id=submission_id,
            outcome=_WORDS[Outcome(decisive.outcome)],
            reason=reason.value if reason else None,
            hint=reason.hint if reason else None,
            checks=tuple(results),
        )

    @property
    def holds(self) -> bool:
        return self.outcome == "accept"


def print_report(report: FileReport) -> None:
    """For people: a line a check, then what it comes to and what to do."""
    if report.submission_id:
        print(report.submission_id)
    for result in report.checks:
        mark = "✓" if result.outcome == Outcome.ACCEPT else "✗"
        words = (mark, result.check, _number(result.value), _limits(result), result.reason, result.detail)
        print(" ".join(filter(None, words)))
    print(f"{report.outcome}{f': {report.reason}' if report.reason else ''}")
    if report.hint:
        print(f"do: {report.hint}")


def _limits(result: CheckResult) -> str:
    if result.reject_threshold is None:
        return ""
    slash = "never" if result.slash_threshold is None else f"over {_number(result.slash_threshold)}"
    return f"(reject over {_number(result.reject_threshold)}, slash {slash})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
