"""From a dossier to a finding: the checks, cheapest first.

    envelope ─▶ duplicates ─▶ protocol/checks: bounds, prompts, proofs, termination, rewards ─▶ what needs the model

In: `Dossier` and `Instruments`. Out: `Finding`. Bytes from outside end in a verdict, whatever they are; a fault of
this verifier travels as an exception, and no verdict follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from protocol.canonical import hex0x
from protocol.checks.audit_rows import Plan, everything
from protocol.checks.case import Case
from protocol.checks.results import as_evidence
from protocol.checks.stages import Check, Examination, examine_file, worst
from protocol.reasons import Outcome, RejectReason
from protocol.wire import Evidence
from verifier.case import Dossier, Instruments, terms_of
from verifier.checks import duplicates, envelope


@dataclass(frozen=True)
class Finding:
    """What the checks say: `reason` is None for an accepted submission.

    `completions_hash` names the completions, where the file could be read (`checks/duplicates.py`).
    """

    outcome: Outcome
    reason: RejectReason | None
    evidence: Evidence
    completions_hash: str | None
    case: Case | None = None
    """What was judged, with its measurements where the model has run; None where the file can't be read."""


def examine(dossier: Dossier, instruments: Instruments, plan: Plan = everything) -> Finding:
    """Run the checks. Raises only for faults of this verifier (a missing model, a bug).

    `plan` says which rollouts the model looks at, and what it is asked besides.
    """
    return _finding(dossier, run(dossier, instruments, plan))


def run(dossier: Dossier, instruments: Instruments, plan: Plan = everything) -> Examination:
    """The same, with the results as the checks gave them."""
    whose: tuple[Check, ...] = (
        partial(envelope.check, dossier),
        partial(duplicates.check, dossier, instruments.find_twin),
    )
    terms = partial(terms_of, dossier, instruments)
    return examine_file(dossier.file, dossier.rules, terms, instruments.load_model, first=whose, plan=plan)


def no_twin(node: str, completions_hash: str, submission_id: str) -> str | None:
    """A memory of nothing: jurors and auditors are to agree, so none asks what it alone has seen before."""
    return None


def _finding(dossier: Dossier, found: Examination) -> Finding:
    decisive, case = worst(found.results), found.case
    evidence = Evidence(
        submission_id=dossier.submission_id,
        seed=hex0x(dossier.seed),
        num_units=case.num_units if case else 0,
        num_rollouts=found.num_rollouts,
        num_audited=found.num_audited,
        checks=tuple(as_evidence(result) for result in found.results),
    )
    reason = RejectReason(decisive.reason) if decisive.reason else None
    return Finding(Outcome(decisive.outcome), reason, evidence, case.completions_hash if case else None, case)
