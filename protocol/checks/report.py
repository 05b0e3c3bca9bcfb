"""What the checks found in one file, for who asked on this machine: a document.

In: an `Examination`. Out: `FileReport`, which `proofpool worker verify --json` and `proofpool verifier check --json`
print; as a table: `protocol/checks/report_table.py`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.checks.divergence import ChunkDivergence, TokenDivergence, first_chunk, first_token
from protocol.checks.sampling import FLIPS_NAME, SIDES_NAME, TIES_NAME
from protocol.checks.stages import Examination, worst
from protocol.reasons import Outcome, RejectReason
from protocol.wire import CheckResult, Hash32

Verdict = Literal["accept", "drop", "slash"]
_WORDS: dict[Outcome, Verdict] = {Outcome.ACCEPT: "accept", Outcome.DROP: "drop", Outcome.SLASH: "slash"}

COUNTED = (FLIPS_NAME, TIES_NAME, SIDES_NAME)
"""Their thresholds are the least counts that are refused; those of others are the most that isn't."""


class CheckReport(CheckResult):
    """A check's result, and how far from a refusal it is.

    `refused_when` the value is "above" or "at least" `reject_threshold`; `margin` = threshold − value, in the
    statistic's own unit, negative where it is refused; `margin_ratio` = value / threshold, 1 at the limit, None where
    the threshold is 0.
    """

    refused_when: Literal["above", "at least"] | None = None
    margin: float | None = None
    margin_ratio: float | None = None

    @classmethod
    def of(cls, result: CheckResult) -> CheckReport:
        value, limit = result.value, result.reject_threshold
        if value is None or limit is None:
            return cls(**result.model_dump())
        return cls(
            **result.model_dump(),
            refused_when="at least" if result.check in COUNTED else "above",
            margin=limit - value,
            margin_ratio=value / limit if limit else None,
        )


class FileReport(BaseModel):
    """All results about one file, ending where a cheap check refuses it. `outcome` is what a verdict would be.

    `content_hash` is the file's, None where it can't be read; `signed_content_hash` what its node has signed for, None
    where it wasn't compared: a file that was damaged on its way then looks like a lie.
    `num_audited` of `num_rollouts` went through the model (0: the cheap checks decided). `first_token`, `first_chunk`:
    where the file first parts from what was computed, if a check of tokens or of proofs refuses it. `milliseconds` by
    stage, in order: `terms` is loading the environment, `model` the weights, `forward` the packed pass, `rows` and
    `toploc` the statistics over all tokens, the rest the check of that name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[4] = 4
    submission_id: Hash32 | None = None
    content_hash: Hash32 | None = None
    signed_content_hash: Hash32 | None = None
    outcome: Verdict
    reason: str | None
    hint: str | None
    checks: tuple[CheckReport, ...]
    num_rollouts: int
    num_audited: int
    first_token: TokenDivergence | None = None
    first_chunk: ChunkDivergence | None = None
    milliseconds: dict[str, float]

    @classmethod
    def of(
        cls, found: Examination, submission_id: str | None = None, signed_content_hash: str | None = None
    ) -> FileReport:
        decisive = worst(found.results)
        reason = RejectReason(decisive.reason) if decisive.reason else None
        measured = found.case if found.measurements else None
        return cls(
            submission_id=submission_id,
            content_hash=found.case.content_hash if found.case else None,
            signed_content_hash=signed_content_hash,
            outcome=_WORDS[Outcome(decisive.outcome)],
            reason=reason.value if reason else None,
            hint=reason.hint if reason else None,
            checks=tuple(CheckReport.of(result) for result in found.results),
            num_rollouts=found.num_rollouts,
            num_audited=found.num_audited,
            first_token=first_token(measured, found.results) if measured else None,
            first_chunk=first_chunk(measured, found.results) if measured else None,
            milliseconds={stage: round(1000 * seconds, 3) for stage, seconds in found.seconds.items()},
        )

    @property
    def holds(self) -> bool:
        return self.outcome == "accept"


FileReports = list[FileReport]
"""What `proofpool worker verify --json` prints: one a submission."""
