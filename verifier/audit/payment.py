"""What it earned or cost: the price paid, the earnings root on chain, the Court's case.

In: a `ProofBundle` and the `ChainFacts` to hold it against. Out: one check a function.
"""

from __future__ import annotations

from collections import Counter

from protocol.bundle import ChainFacts, LoggedEvent, ProofBundle
from protocol.draw import JURY_ROUND
from protocol.merkle.standard import verify_earnings
from protocol.reasons import Outcome, RejectReason
from verifier.audit.content import read_file
from verifier.audit.history import event_payments
from verifier.audit.step import StillOpen, Values, must_equal, must_hold


def check_payment(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """Accepted work earned its units at the leased price; anything else earned its provider nothing."""
    if bundle.settled is None:
        raise StillOpen("it isn't settled yet")
    paid = event_payments(bundle.settled.entry)
    if not _is_accepted(bundle.settled):
        must_hold("a rejected submission was paid", facts.provider not in paid, f"{paid.get(facts.provider)} wei")
        return {"amount_wei": "0"}
    num_units = sum(rollout.num_units for rollout in read_file(bundle)[1])
    amount = num_units * bundle.task.message.price_wei
    must_equal("the provider was paid another amount", paid.get(facts.provider), amount)
    return {"num_units": str(num_units), "price_wei": str(bundle.task.message.price_wei), "amount_wei": str(amount)}


def check_earnings(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """The payment is part of the provider's cumulative earnings under the root on chain."""
    if bundle.settled is None or not _is_accepted(bundle.settled):
        raise StillOpen("nothing was earned")
    proof, settled = bundle.earnings, bundle.settled.inclusion
    if proof is None or facts.earnings is None:
        raise StillOpen("no earnings root is on chain yet")
    if settled is None or settled.epoch > proof.epoch:
        raise StillOpen(f"the newest earnings root, of epoch {proof.epoch}, is older than the payment")
    must_equal(
        "the statement isn't the one on chain", (proof.epoch, proof.root), (facts.earnings.epoch, facts.earnings.root)
    )
    must_equal("the earnings proof is another account's", proof.account, facts.provider)
    must_hold(
        "the provider's earnings aren't under the root on chain",
        verify_earnings(proof.root, proof.account, proof.cumulative_wei, proof.path),
        f"{proof.cumulative_wei} wei, root {proof.root}",
    )
    amount = event_payments(bundle.settled.entry).get(facts.provider, 0)
    must_hold("the earnings are less than this payment", proof.cumulative_wei >= amount, f"{proof.cumulative_wei} wei")
    return {"cumulative_wei": str(proof.cumulative_wei), "root": proof.root, "epoch": str(proof.epoch)}


def _is_accepted(settled: LoggedEvent) -> bool:
    return bool(settled.entry.event.get("type") == "submission.accepted")


def check_slash(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """Enough slashable verdicts of one round are a case at the Court; without them there is none but a challenge's."""
    messages = [v.verdict.message for v in bundle.verdicts if v.verdict.message.outcome == Outcome.SLASH]
    votes = Counter(message.round for message in messages)
    case = facts.case
    if case is None:
        if (most := max(votes.values(), default=0)) >= facts.slash_quorum:
            raise StillOpen(f"{most} slashable verdicts, not accused on chain yet")
        return {"case": "none", "slashable_verdicts": str(votes[0])}
    must_equal("the case is against another provider", case.provider, facts.provider)
    values = {"case": case.state, "reason": _reason_name(case.reason), "held_wei": str(case.held_wei)}
    if case.round == JURY_ROUND:
        return {**values, "opened_by": "challenge"}
    must_hold(
        "there is a case without enough slashable verdicts",
        votes[case.round] >= facts.slash_quorum,
        f"{votes[case.round]} of {facts.slash_quorum} in round {case.round}",
    )
    reasons = {message.reason for message in messages if message.round == case.round}
    said = ", ".join(map(_reason_name, sorted(reasons)))
    must_hold("the case is about another reason", case.reason in reasons, f"{case.reason}, verdicts say {said}")
    return values


def _reason_name(code: int) -> str:
    """The reason in words; a number that no reason has stays one."""
    try:
        return RejectReason.from_code(code).value
    except KeyError:
        return str(code)
