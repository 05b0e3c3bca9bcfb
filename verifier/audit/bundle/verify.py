"""`proofpool audit verify`: every step from the file's bytes to the payment or the slash.

In: a `ProofBundle`, the `Ground` that the auditor stands on, the id that was asked for. Out: a `Report`.
"""

from __future__ import annotations

from functools import partial

from protocol.bundle import ProofBundle
from verifier.audit.bundle.content import check_digest, check_lease, check_node, check_receipt
from verifier.audit.bundle.ground import Ground, check_deployment
from verifier.audit.bundle.history import check_append_only, check_heads, check_received, check_received_inclusion
from verifier.audit.bundle.payment import check_earnings, check_payment, check_slash
from verifier.audit.bundle.reaudit import check_reaudit
from verifier.audit.bundle.verdicts import check_commitments, check_decision, check_draws, check_verdicts
from verifier.audit.step import Check, Report, StepState, take_step


def verify_bundle(bundle: ProofBundle, ground: Ground, submission_id: str) -> Report:
    """Take every step, whatever an earlier one said: an auditor wants to see all of it.

    Evidence that is newer than the trusted head isn't anchored: whoever knows the log could have added it.
    """
    steps = tuple(take_step(name, check) for name, check in checks_of(bundle, ground, submission_id).items())
    is_anchored = ground.is_chain or all(step.state is not StepState.OPEN for step in steps if step.name == "heads")
    return Report(submission_id, steps, ground.anchor if is_anchored else "", as_of(bundle))


def as_of(bundle: ProofBundle) -> str:
    """How fresh the coordinator's evidence is."""
    fresh = bundle.freshness
    return f"coordinator indexed to block {fresh.indexed_block}, head {fresh.head_block}, lag {fresh.lag_seconds:.1f} s"


def checks_of(bundle: ProofBundle, ground: Ground, submission_id: str) -> dict[str, Check]:
    """Every step by its name, in order; none is taken yet."""
    facts = ground.facts
    return {
        "deployment": partial(check_deployment, bundle, ground),
        "digest": partial(check_digest, bundle, facts, submission_id),
        "lease": partial(check_lease, bundle, facts),
        "node signature": partial(check_node, bundle, facts),
        "receipt": partial(check_receipt, bundle, facts, submission_id),
        "log event": partial(check_received, bundle, submission_id),
        "inclusion": partial(check_received_inclusion, bundle, facts),
        "append-only": partial(check_append_only, bundle, facts),
        "heads": partial(check_heads, bundle, ground),
        "verdicts": partial(check_verdicts, bundle, facts, submission_id),
        "commitments": partial(check_commitments, bundle, facts, submission_id),
        "draws": partial(check_draws, bundle, facts, submission_id),
        "decision": partial(check_decision, bundle, facts, submission_id),
        "re-audit": partial(check_reaudit, bundle, facts, submission_id),
        "payment": partial(check_payment, bundle, facts),
        "earnings": partial(check_earnings, bundle, facts),
        "slash": partial(check_slash, bundle, facts),
    }
