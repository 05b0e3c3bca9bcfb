"""Who judged it, were they drawn, did they commit first, and does the outcome follow from what they said?

In: a `ProofBundle` and the `ChainFacts` to hold it against. Out: one check a function.
"""

from __future__ import annotations

from collections import Counter

from protocol.bundle import ChainFacts, ProofBundle, RevealedVerdict, SeatFact
from protocol.canonical import canonical_hash
from protocol.draw import FOREVER, REAUDIT_ROUND, Seat, drawn_seats
from protocol.errors import UsageError, VerificationFailed
from protocol.merkle.commitment import verify_commitment
from protocol.reasons import Outcome, fits
from protocol.wire import Verdict
from verifier.audit.bundle.history import check_entry, check_inclusion, event_data
from verifier.audit.step import StillOpen, Values, must_equal, must_hold

NO_SUBJECT = "0x" + "00" * 32


def check_verdicts(bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> Values:
    """Each verdict is its seat's, about this submission under these rules, and about the evidence shown.

    A validator has one a round: the same verdict shown twice would make a quorum of one.
    """
    if not bundle.verdicts:
        raise StillOpen("no verdict is revealed yet")
    for revealed in bundle.verdicts:
        _check_verdict(revealed, bundle, facts, submission_id)
    times = Counter((v.validator, v.verdict.message.round) for v in bundle.verdicts)
    twice = [validator for (validator, _), count in times.items() if count > 1]
    must_hold("a validator is counted more than once", not twice, ", ".join(twice))
    said = ((v.verdict.message.seat, Outcome(v.verdict.message.outcome).name) for v in bundle.verdicts)
    return {"verdicts": ", ".join(f"seat {seat}: {outcome}" for seat, outcome in said)}


def check_commitments(bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> Values:
    """Each verdict was committed to, and the commitment anchored, before it was revealed."""
    if not bundle.verdicts:
        raise StillOpen("no verdict is revealed yet")
    roots = [_check_commitment(revealed, facts, submission_id) for revealed in bundle.verdicts]
    return {"roots": ", ".join(roots)}


def check_draws(bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> Values:
    """The beacons of the epochs that took it in, and that settled it, drew these seats, and no others came first."""
    if bundle.received.inclusion is None or not bundle.verdicts:
        raise StillOpen("no seat has been drawn and heard yet")
    _check_seats(bundle.chain.seats, facts.seats)
    beacons = []
    for round_number in sorted({v.verdict.message.round for v in bundle.verdicts}):
        epoch = drawing_epoch(bundle, round_number)
        head = None if epoch is None else facts.head(epoch)
        if head is None or head.beacon_hash is None:
            raise VerificationFailed("verdicts were given before the beacon was known", f"epoch {epoch}")
        beacons.append(head.beacon_hash)
        drawn = _draw(head.beacon_hash, head.epoch, submission_id, round_number, facts)
        for revealed in bundle.verdicts:
            if revealed.verdict.message.round == round_number:
                place = (revealed.draw, revealed.verdict.message.seat)
                must_hold("a seat judged that wasn't drawn", place in drawn, f"draw, seat = {place}; drawn {drawn}")
    return {"beacon": ", ".join(beacons), "draws": ", ".join(str(v.draw) for v in bundle.verdicts)}


def check_decision(bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> Values:
    """What was settled follows from round 0's verdicts: enough of them, and the majority's side."""
    if bundle.settled is None:
        raise StillOpen("it isn't settled yet")
    decided = str(bundle.settled.entry.event.get("type", ""))
    must_hold("it was settled by an unknown event", decided in ("submission.accepted", "submission.rejected"), decided)
    check_entry(bundle.settled.entry, decided, submission_id)
    outcomes = [v.verdict.message.outcome for v in bundle.verdicts if v.verdict.message.round == 0]
    votes = Counter(outcome == Outcome.ACCEPT for outcome in outcomes)
    slashed = Outcome.SLASH in outcomes
    needed = facts.slash_quorum if slashed else facts.accept_quorum
    accepted = decided == "submission.accepted"
    counted = f"{votes[True]} accept, {votes[False]} reject, {needed} needed"
    must_hold(f"{decided} doesn't follow from the verdicts", votes[accepted] > votes[not accepted], counted)
    must_hold(f"{decided} came too early", votes.total() >= needed, counted)
    check_inclusion(bundle.settled, facts)
    return {"standing": decided, "votes": counted}


def drawing_epoch(bundle: ProofBundle, round_number: int) -> int | None:
    """The epoch whose beacon draws a round: that of the arrival, and for round 1 that of the settling."""
    event = {0: bundle.received, REAUDIT_ROUND: bundle.settled}.get(round_number)
    return None if event is None or event.inclusion is None else event.inclusion.epoch


def _check_verdict(revealed: RevealedVerdict, bundle: ProofBundle, facts: ChainFacts, submission_id: str) -> None:
    verdict = revealed.verdict.check(revealed.validator, facts.domain)
    owner = next((seat.validator for seat in facts.seats if seat.seat == verdict.seat), None)
    must_equal(f"seat {verdict.seat} is another validator's", revealed.validator, owner)
    must_equal("a verdict is about another submission", verdict.submission_id, submission_id)
    said = f"outcome {verdict.outcome}, reason {verdict.reason}"
    must_hold("a verdict says nothing known", fits(verdict.outcome, verdict.reason), said)
    must_equal("a verdict is for another pool", verdict.pool_id, facts.pool_id)
    must_equal("a verdict is under other rules", verdict.rules_hash, bundle.submission.message.rules_hash)
    if (epoch := drawing_epoch(bundle, verdict.round)) is not None:
        must_equal("a verdict is for another epoch", verdict.epoch, epoch)
    found = canonical_hash(revealed.evidence.as_json())
    must_equal("a verdict is about other evidence", found, verdict.evidence_hash)
    check_entry(revealed.revealed.entry, "verdict.revealed", submission_id)
    data = event_data(revealed.revealed.entry)
    logged = {name: data.get(name) for name in ("round", "seat", "outcome", "evidence_hash")}
    must_equal("the log has another verdict there", logged, verdict.model_dump(include=set(logged)))
    must_equal("the log has another validator's verdict there", data.get("validator"), revealed.validator)
    if revealed.revealed.inclusion is not None:
        check_inclusion(revealed.revealed, facts)


def _check_commitment(revealed: RevealedVerdict, facts: ChainFacts, submission_id: str) -> str:
    verdict: Verdict = revealed.verdict.message
    commitment = revealed.commitment.check(revealed.validator, facts.domain)
    must_equal("the commitment is another seat's", commitment.seat, verdict.seat)
    check_entry(revealed.committed.entry, "verdict.committed", NO_SUBJECT)
    data = event_data(revealed.committed.entry)
    logged = (data.get("seat"), data.get("epoch"), data.get("part"), data.get("root"))
    must_equal(
        "the log has another commitment",
        logged,
        (commitment.seat, commitment.epoch, commitment.part, commitment.root),
    )
    check_inclusion(revealed.committed, facts)
    assert revealed.committed.inclusion is not None
    must_hold(
        f"seat {verdict.seat} revealed before its commitment was anchored",
        revealed.revealed.entry.index >= revealed.committed.inclusion.size,
        f"revealed at {revealed.revealed.entry.index}, anchored at {revealed.committed.inclusion.size}",
    )
    digest = verdict.id(facts.domain)
    must_hold(
        f"seat {verdict.seat} had committed to another verdict",
        verify_commitment(commitment.root, submission_id, digest, revealed.salt, revealed.path),
        f"root {commitment.root}",
    )
    return commitment.root


def _check_seats(claimed: tuple[SeatFact, ...], found: tuple[SeatFact, ...]) -> None:
    """What is claimed is a chain's list as it stood once: later ones are added, and a seat's end only comes nearer."""
    for position, seat in enumerate(claimed):
        there = found[position] if position < len(found) else None
        must_equal(f"the bundle claims another seat {position}", _bonded(seat), there and _bonded(there))
        assert there is not None
        ends = _end(there.active_until_epoch), _end(seat.active_until_epoch)
        must_hold(f"the bundle claims another end of seat {position}", ends[0] <= ends[1], f"{ends[1]}, not {ends[0]}")


def _bonded(seat: SeatFact) -> tuple[int, str, int]:
    return seat.seat, seat.validator, seat.active_from_epoch


def _end(active_until_epoch: int | None) -> int:
    return FOREVER if active_until_epoch is None else active_until_epoch


def _draw(
    beacon_hash: str, epoch: int, submission_id: str, round_number: int, facts: ChainFacts
) -> list[tuple[int, int]]:
    """(draw, seat) in drawn order."""
    seats = [Seat(s.seat, s.validator, s.active_from_epoch, _end(s.active_until_epoch)) for s in facts.seats]
    try:
        drawn = list(drawn_seats(beacon_hash, submission_id, round_number, seats, epoch, {facts.provider}))
    except UsageError as error:
        raise VerificationFailed("the seats can't be a chain's", f"{error.what}: {error.why}") from error
    return [(one.draw_index, one.seat.index) for one in drawn]
