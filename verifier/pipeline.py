"""From a dossier to a finding: the checks, cheapest first.

In: `Dossier` and `Instruments`. Out: `Finding`. The cheap part stops at its first
refusal, so that hostile files cost little; the model runs once for all checks that need it, and they all report.
Bytes from outside end in a verdict, whatever they are; a fault of this verifier travels as an exception, and
no verdict follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from protocol.canonical import hex0x
from protocol.errors import MalformedFile
from protocol.reasons import Outcome, RejectReason
from protocol.wire import CheckResult, Evidence
from verifier.case import Case, Dossier, Instruments, open_case
from verifier.checks import (
    bounds,
    duplicates,
    envelope,
    logprobs,
    prompts,
    proofs,
    rewards,
    sampling,
    termination,
    toploc,
)
from verifier.results import passed, refused

if TYPE_CHECKING:
    from verifier.measurements import Measurements

Check = Callable[[Case], CheckResult]

CHEAP: tuple[Check, ...] = (
    envelope.check,
    bounds.check,
    prompts.check,
    duplicates.check,
    proofs.check,
    termination.check,
    rewards.check,
)
"""On bytes alone."""

COSTLY: tuple[Check, ...] = (
    toploc.check_content,
    toploc.check_exponents,
    toploc.check_mantissas,
    sampling.check_margin,
    sampling.check_mismatch,
    sampling.check_tail,
    termination.check_eos,
    logprobs.check,
)
"""On what the model says of them."""


@dataclass(frozen=True)
class Finding:
    """What the checks say: `reason` is None for an accepted submission.

    `completions_hash` names the completions, where the file could be read (`checks/duplicates.py`).
    """

    outcome: Outcome
    reason: RejectReason | None
    evidence: Evidence
    completions_hash: str | None


def examine(dossier: Dossier, instruments: Instruments, cheap: Sequence[Check] = CHEAP) -> Finding:
    """Run the checks. Raises only for faults of this verifier (a missing model, a bug)."""
    try:
        case = open_case(dossier, instruments)
    except MalformedFile as error:
        return finding_of(dossier, None, [refused("schema", RejectReason.SCHEMA_INVALID, str(error))])
    return finding_of(dossier, case, [passed("schema", num_audited=len(case.rollouts)), *run_checks(case, cheap)])


def run_checks(case: Case, cheap: Sequence[Check]) -> list[CheckResult]:
    """The cheap checks up to the first refusal; if there is none, all of those that need the model."""
    results: list[CheckResult] = []
    for check in cheap:
        results.append(check(case))
        if results[-1].outcome != Outcome.ACCEPT:
            return results
    measured_case = replace(case, measurements=_measure(case))
    return results + [check(measured_case) for check in COSTLY]


def _measure(case: Case) -> Measurements:
    from verifier.checks.prefill import measure  # torch is loaded for the first file that gets this far

    return measure(case, case.instruments.load_model())


def finding_of(dossier: Dossier, case: Case | None, results: Sequence[CheckResult]) -> Finding:
    """The worst result decides; among equals the first."""
    worst = max(results, key=lambda result: result.outcome)
    evidence = Evidence(
        submission_id=dossier.submission_id,
        seed=hex0x(dossier.seed),
        num_units=case.num_units if case else 0,
        checks=tuple(results),
    )
    reason = RejectReason(worst.reason) if worst.reason else None
    return Finding(Outcome(worst.outcome), reason, evidence, case.completions_hash if case else None)
