"""The checks in order: on bytes first, so that hostile files cost little; the model runs once for all that need it.

In: a case, and how to get at its policy version's model. Out: a `CheckResult` a check, up to the first refusal of the
cheap ones; those on the model's word all report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from protocol.checks import bounds, logprobs, prompts, proofs, rewards, sampling, termination, toploc
from protocol.checks.case import Case
from protocol.reasons import Outcome
from protocol.wire import CheckResult

if TYPE_CHECKING:
    from protocol.forward import CausalLM

Check = Callable[[Case], CheckResult]
LoadModel = Callable[[], "CausalLM"]
"""Called for files that pass all cheap checks only."""

CHEAP: tuple[Check, ...] = (bounds.check, prompts.check, proofs.check, termination.check, rewards.check)
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


def run_checks(case: Case, load_model: LoadModel, cheap: Sequence[Check] = CHEAP) -> list[CheckResult]:
    """The cheap checks up to the first refusal; if there is none, all of those that need the model."""
    results: list[CheckResult] = []
    for check in cheap:
        results.append(check(case))
        if results[-1].outcome != Outcome.ACCEPT:
            return results
    return results + run_costly(case, load_model())


def run_costly(case: Case, model: CausalLM) -> list[CheckResult]:
    """Measure once; every check that needs the model looks at that."""
    from protocol.checks.prefill import measure  # torch is loaded for the first file that gets this far

    measured_case = replace(case, measurements=measure(case, model))
    return [check(measured_case) for check in COSTLY]


def worst(results: Sequence[CheckResult]) -> CheckResult:
    """The result that decides; among equals the first."""
    return max(results, key=lambda result: result.outcome)
