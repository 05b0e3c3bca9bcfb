"""Was it due to be judged again, was it, and what did that say?

In: a `ProofBundle` and the `ChainFacts` to hold it against. Out: one check.
"""

from __future__ import annotations

from collections import Counter

from protocol.bundle import ChainFacts, ProofBundle
from protocol.draw import REAUDIT_ROUND, is_reaudited
from protocol.reasons import Outcome
from protocol.stamp import is_disputed
from verifier.audit.bundle.verdicts import drawing_epoch
from verifier.audit.step import StillOpen, Values, must_hold


def check_reaudit(bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> Values:
    """The beacon of the epoch that settled it picked it, or nobody judged again; and the decision stands."""
    again = _votes(bundle, REAUDIT_ROUND)
    epoch = drawing_epoch(bundle, REAUDIT_ROUND)
    head = None if epoch is None else facts.head(epoch)
    if head is None or head.beacon_hash is None:
        must_hold("it was judged again before it was settled", not again, f"{len(again)} verdicts of round 1")
        raise StillOpen("the beacon that decides on it isn't known yet")
    if not is_reaudited(head.beacon_hash, submission_id, facts.reaudit_bps):
        must_hold("it was judged again, and no beacon picked it", not again, f"beacon of epoch {epoch}")
        return {"due": "no", "beacon": head.beacon_hash}
    if not again:
        raise StillOpen(f"due by the beacon of epoch {epoch}; nobody has been heard yet")
    votes = Counter((*_votes(bundle, 0), *again))
    accepted = bundle.settled is not None and bundle.settled.entry.event.get("type") == "submission.accepted"
    counted = f"{votes[True]} accept, {votes[False]} reject in both rounds"
    must_hold("the re-audit contradicts the decision", votes[accepted] > votes[not accepted], counted)
    return {"due": "yes", "votes": counted, "disputed_stamps": ", ".join(_disputed(bundle)) or "none"}


def _votes(bundle: ProofBundle, round_number: int) -> list[bool]:
    """Whether each verdict of the round accepts."""
    messages = [revealed.verdict.message for revealed in bundle.verdicts]
    return [message.outcome == Outcome.ACCEPT for message in messages if message.round == round_number]


def _disputed(bundle: ProofBundle) -> list[str]:
    """Seats whose work stamps more of the shown reviews dispute than confirm."""
    validators = {(v.verdict.message.round, v.verdict.message.seat): v.validator for v in bundle.verdicts}
    votes: dict[tuple[int, int], Counter[bool]] = {}
    for revealed in bundle.verdicts:
        for review in revealed.evidence.stamp_reviews:
            if validators.get((review.round, review.seat), revealed.validator) != revealed.validator:
                votes.setdefault((review.round, review.seat), Counter())[review.agrees] += 1
    return [f"seat {seat}" for (_, seat), count in votes.items() if is_disputed(count[True], count[False])]
