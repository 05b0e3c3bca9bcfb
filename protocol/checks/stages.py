"""The checks in order: on bytes first, so that hostile files cost little; the model runs once for all that need it.

In: a file, what it is judged by, how to get at its policy version's model, and which rollouts to audit. Out: an
`Examination` with a `CheckResult` a check, up to the first refusal of the cheap ones; those on the model's word all
report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from protocol.checks import bounds, logprobs, plausibility, prompts, proofs, rewards, sampling, termination, toploc
from protocol.checks.audit_rows import Audit, Plan, everything
from protocol.checks.case import Case, Terms, read_rows
from protocol.checks.results import passed, refused
from protocol.checks.stopwatch import Stopwatch
from protocol.errors import MalformedFile
from protocol.reasons import Outcome, RejectReason
from protocol.rules import Rules
from protocol.wire import CheckResult

if TYPE_CHECKING:
    from protocol.checks.measurements import Measurements
    from protocol.forward import CausalLM

Check = Callable[[Case], CheckResult]
LoadTerms = Callable[[], Terms]
"""Called for files that can be read only: an environment takes seconds to import."""
LoadModel = Callable[[], "CausalLM"]
"""Called for files that pass all cheap checks only."""

SCHEMA_NAME = "schema"

CHEAP: tuple[Check, ...] = (bounds.check, prompts.check, proofs.check, termination.check, rewards.check)
"""On bytes alone."""

COSTLY: tuple[Check, ...] = (
    toploc.check_content,
    toploc.check_exponents,
    toploc.check_mantissas,
    toploc.check_worst_exponents,
    toploc.check_worst_mantissas,
    sampling.check_margin,
    sampling.check_largest,
    sampling.check_flips,
    sampling.check_ties,
    sampling.check_sides,
    sampling.check_freedom,
    plausibility.check_tail,
    plausibility.check_surprisal,
    termination.check_eos,
    termination.check_eos_mean,
    logprobs.check,
    logprobs.check_largest,
)
"""On what the model says of them."""


@dataclass(frozen=True, eq=False)
class Examination:
    """What was found of a file. `case` is None where it can't be read, and has measurements where the model ran.

    `seconds` it took, by stage, in order.
    """

    case: Case | None
    results: tuple[CheckResult, ...]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def measurements(self) -> Measurements | None:
        return self.case.measurements if self.case else None

    @property
    def num_rollouts(self) -> int:
        return len(self.case.rollouts) if self.case else 0

    @property
    def num_audited(self) -> int:
        """Rollouts that the model looked at; 0 where the cheap checks decided."""
        return len(self.measurements.rollouts) if self.measurements else 0


def examine_file(
    file: bytes,
    rules: Rules,
    load_terms: LoadTerms,
    load_model: LoadModel,
    *,
    first: Sequence[Check] = (),
    plan: Plan = everything,
) -> Examination:
    """Every check of a file that says of itself what the terms ask for; `first` come before the others."""
    watch = Stopwatch()
    if len(file) > rules.max_file_bytes:
        detail = f"{len(file)} bytes, at most {rules.max_file_bytes}"
        return Examination(None, (refused(SCHEMA_NAME, RejectReason.TOO_LARGE, detail),))
    try:
        header, rollouts = read_rows(file, rules)
    except MalformedFile as error:
        return Examination(None, (refused(SCHEMA_NAME, RejectReason.SCHEMA_INVALID, str(error)),))
    watch.lap(SCHEMA_NAME)
    case = Case(load_terms(), header, tuple(rollouts))
    watch.lap("terms")
    found = run_checks(case, load_model, (*first, *CHEAP), plan, watch)
    return replace(found, results=(passed(SCHEMA_NAME, num_audited=len(case.rollouts)), *found.results))


def run_checks(
    case: Case,
    load_model: LoadModel,
    cheap: Sequence[Check] = CHEAP,
    plan: Plan = everything,
    watch: Stopwatch | None = None,
) -> Examination:
    """The cheap checks up to the first refusal; if there is none, all of those that need the model."""
    watch, results = watch or Stopwatch(), []
    for check in cheap:
        results.append(check(case))
        watch.lap(results[-1].check)
        if results[-1].outcome != Outcome.ACCEPT:
            return Examination(case, tuple(results), watch.seconds)
    audit, model = plan(case), load_model()
    watch.lap("model")
    costly = run_costly(case, model, audit, watch)
    return replace(costly, results=(*results, *costly.results))


def run_costly(case: Case, model: CausalLM, audit: Audit | None = None, watch: Stopwatch | None = None) -> Examination:
    """Measure once; every check that needs the model looks at that.

    What is drawn is looked at first, and if it is suspicious and the rules say so, everything is: the results are
    then about all rollouts.
    """
    from protocol.checks.measurements import Measurements  # numpy and torch come with the first file that gets here
    from protocol.checks.prefill import measure

    audit, watch = audit or everything(case), watch or Stopwatch()
    found = measure(case, model, audit.rollouts, audit.asked, watch=watch)
    rest = sorted(set(range(len(case.rollouts))) - set(audit.rollouts))
    if rest and case.rules.audit.escalating and is_suspicious(replace(case, measurements=found)):
        watch.lap("suspicion")
        found = Measurements.joined([found, measure(case, model, rest, watch=watch)])
    return _judged(replace(case, measurements=found), watch)


def narrowed(found: Examination, drawn: Collection[int]) -> Examination:
    """What an audit that drew these rollouts would have found, of one that looked at all: the model doesn't run again.

    The same where the cheap checks decided, and where what was drawn is suspicious and the rules then ask for all.
    """
    case, measured = found.case, found.measurements
    if case is None or measured is None or set(measured.rollouts) <= set(drawn):
        return found
    part = replace(case, measurements=measured.part(drawn))
    if case.rules.audit.escalating and is_suspicious(part):
        return found
    costly = _judged(part, Stopwatch())
    return replace(costly, results=(*found.results[: -len(COSTLY)], *costly.results))


def _judged(case: Case, watch: Stopwatch) -> Examination:
    """Every check that looks at measurements."""
    results = []
    for check in COSTLY:
        results.append(check(case))
        watch.lap(results[-1].check)
    return Examination(case, tuple(results), watch.seconds)


def is_suspicious(case: Case) -> bool:
    """Whether the audited rollouts together are beyond the limits of the whole file, or any of them beyond its own.

    A few rollouts have much room before they are refused, which isn't to hide what all of them would be refused for.
    """
    from protocol.checks.measurements import measurements_of

    found = measurements_of(case)
    each = [replace(case, measurements=found.only(index)) for index in range(len(found.rollouts))]
    return any(check(one).outcome != Outcome.ACCEPT for one in (_held_to_whole(case), *each) for check in COSTLY)


def _held_to_whole(case: Case) -> Case:
    """The case with its whole file's limits for whatever part of it was measured."""
    from protocol.toploc.encoding import num_chunks

    rules = case.rules
    in_all = sum(num_chunks(rollout.num_units, rules.toploc.chunk_rows) for rollout in case.rollouts)
    thresholds = rules.thresholds.at(in_all, case.num_units)
    terms = replace(case.terms, rules=rules.model_copy(update={"thresholds": thresholds}))
    return replace(case, terms=terms)


def worst(results: Sequence[CheckResult]) -> CheckResult:
    """The result that decides; among equals the first."""
    return max(results, key=lambda result: result.outcome)
