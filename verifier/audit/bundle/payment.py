"""What it earned or cost: the price paid, the earnings root on chain, the Court's case.

In: a `ProofBundle` and the `ChainFacts` to hold it against. Out: one check a function.
"""

from __future__ import annotations

from collections import Counter

from protocol.bundle import CaseFact, ChainFacts, EarningsFact, EarningsProof, LoggedEvent, ProofBundle
from protocol.draw import JURY_ROUND
from protocol.merkle.standard import verify_earnings
from protocol.reasons import Outcome, RejectReason
from verifier.audit.bundle.content import read_file
from verifier.audit.bundle.history import event_data, event_payments
from verifier.audit.step import StillOpen, Values, must_equal, must_hold

GOES_ON = ("accused", "appealed", "challenged", "lapsed")
"""States that a case may have left since the bundle was made: an accusation takes challenges and lapses over."""


def check_payment(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """Accepted work earned its units at the leased price; anything else earned its provider nothing."""
    if bundle.settled is None:
        raise StillOpen("it isn't settled yet")
    paid = event_payments(bundle.settled.entry)
    said = event_data(bundle.settled.entry).get("amount_wei")
    must_equal("the log says another amount than it pays", said, str(paid.get(facts.provider, 0)))
    if not _is_accepted(bundle.settled):
        must_hold("a rejected submission was paid", facts.provider not in paid, f"{paid.get(facts.provider)} wei")
        return {"amount_wei": "0"}
    num_units = sum(rollout.num_units for rollout in read_file(bundle)[1])
    amount = num_units * bundle.task.message.price_wei
    must_equal("the provider was paid another amount", paid.get(facts.provider), amount)
    return {"num_units": str(num_units), "price_wei": str(bundle.task.message.price_wei), "amount_wei": str(amount)}


def check_earnings(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """The payment is part of the provider's cumulative earnings under the root on chain.

    What a bundle shows of earnings holds, whether or not this submission earned anything.
    """
    proof = bundle.earnings
    _check_claim(bundle.chain.earnings, facts.earnings)
    if proof is not None:
        _check_proof(proof, facts)
    if bundle.settled is None:
        raise StillOpen("nothing is earned before it is settled")
    if not _is_accepted(bundle.settled):
        return {"amount_wei": "0"}
    if proof is None:
        raise StillOpen("no earnings root is on chain yet")
    settled = bundle.settled.inclusion
    if settled is None or settled.epoch > proof.epoch:
        raise StillOpen(f"the newest earnings root, of epoch {proof.epoch}, is older than the payment")
    amount = event_payments(bundle.settled.entry).get(facts.provider, 0)
    must_hold("the earnings are less than this payment", proof.cumulative_wei >= amount, f"{proof.cumulative_wei} wei")
    return {"cumulative_wei": str(proof.cumulative_wei), "root": proof.root, "epoch": str(proof.epoch)}


def _check_claim(claimed: EarningsFact | None, found: EarningsFact | None) -> None:
    """A root stands as it was committed; only what is drawn from it grows."""
    if claimed is None:
        return
    must_hold("the earnings root isn't on chain", found is not None, f"epoch {claimed.epoch}, root {claimed.root}")
    assert found is not None
    statement = (found.epoch, found.root, found.total_wei)
    must_equal("the statement isn't the one on chain", (claimed.epoch, claimed.root, claimed.total_wei), statement)
    drawn = f"claimed {claimed.claimed_wei} wei, on chain {found.claimed_wei}"
    must_hold("less has been drawn than the bundle says", claimed.claimed_wei <= found.claimed_wei, drawn)


def _check_proof(proof: EarningsProof, facts: ChainFacts) -> None:
    """The account's leaf is under the root on chain."""
    root = None if facts.earnings is None else (facts.earnings.epoch, facts.earnings.root)
    must_equal("the earnings proof is for another root", (proof.epoch, proof.root), root)
    must_equal("the earnings proof is another account's", proof.account, facts.provider)
    must_hold(
        "the provider's earnings aren't under the root on chain",
        verify_earnings(proof.root, proof.account, proof.cumulative_wei, proof.path),
        f"{proof.cumulative_wei} wei, root {proof.root}",
    )


def _is_accepted(settled: LoggedEvent) -> bool:
    return bool(settled.entry.event.get("type") == "submission.accepted")


def check_slash(bundle: ProofBundle, facts: ChainFacts) -> Values:
    """Enough slashable verdicts of one round are a case at the Court; without them there is none but a challenge's."""
    messages = [v.verdict.message for v in bundle.verdicts if v.verdict.message.outcome == Outcome.SLASH]
    votes = Counter(message.round for message in messages)
    case = facts.case
    _check_case(bundle.chain.case, case)
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


def _check_case(claimed: CaseFact | None, found: CaseFact | None) -> None:
    """What is claimed is the Court's case as it stands, or as it stood before it went on."""
    if claimed is None or claimed == found:
        return
    must_hold("there is no such case at the Court", found is not None, claimed.state)
    assert found is not None
    went_on = claimed.state in GOES_ON and claimed.state != found.state and claimed.provider == found.provider
    must_hold("the Court has another case", went_on, f"claimed {claimed}, found {found}")


def _reason_name(code: int) -> str:
    """The reason in words; a number that no reason has stays one."""
    try:
        return RejectReason.from_code(code).value
    except KeyError:
        return str(code)
