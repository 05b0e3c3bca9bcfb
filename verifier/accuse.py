"""From slash verdicts to a slash: the case is opened, and carried out once the appeal period is over.

In: submissions that this verifier found forged, in round 0 or as a re-audit, everybody's revealed verdicts, the checked
log, the chain. Out: `Court.accuse`, `Court.implicate` for seats that accepted what a re-audit condemns, later
`Court.enforce`. Any verifier may send each, so a colleague who was first is no fault; what is accused, and who is
named, is read from the Court each time, so a restart repeats nothing. Everything in an accusation is checked first:
a refused transaction costs gas.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocol.api import SubmissionView, VerdictView
from protocol.canonical import hex0x
from protocol.chain.cases import NOT_SETTLED, Accusation, CaseState, Inclusion
from protocol.client import CoordinatorClient
from protocol.draw import REAUDIT_ROUND
from protocol.errors import NotFound, ProofpoolError, Rejected, SignatureInvalid, TransactionReverted, Unreachable
from protocol.reasons import SLASHABLE_MASK, Outcome
from protocol.signing import SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import Signed, Verdict
from verifier.chain import PoolChain
from verifier.draws import draw_order, drawing_epoch
from verifier.history import History, Leaf, Received
from verifier.implicate import implicate

SCHEMA = """
CREATE TABLE IF NOT EXISTS closed_case (submission_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
"""

ROUNDS = (0, REAUDIT_ROUND)
TOO_LATE = "AccusedTooLate"
WATCHED_SECONDS = 900
"""How long after its end a case is looked at, in chain seconds: a reorg may take the end back."""
FIRST_COME = ("CaseExists", "WrongState", "TooEarly")
"""Refusals that say a colleague was first, or the chain's clock is a block behind."""


@dataclass(frozen=True)
class DrawnVerdict:
    """A valid slash verdict and the raw draw of its seat."""

    signed: Signed[Verdict]
    draw_index: int


class Accuser:
    """Follows every submission that this verifier found forged until its case is closed."""

    def __init__(self, db: sqlite3.Connection, chain: PoolChain, client: CoordinatorClient, history: History) -> None:
        self._db = db
        self._chain = chain
        self._client = client
        self._history = history
        self._looked_at: dict[str, set[str]] = {}
        """Signatures of the verdicts that were named, or need not be, of each open case; a restart looks again."""
        self._ended: dict[str, int] = {}
        """Cases that were over, and when that was seen first."""
        db.executescript(SCHEMA)

    def turn(self) -> None:
        """One step further with each open case; one that can't go on keeps no other from it.

        Each has its deadline, and a coordinator may withhold, or answer nonsense for, whichever it pleases.
        """
        self._reopen()
        for submission_id in self.open_cases():
            try:
                self._advance(submission_id)
            except ProofpoolError as error:
                get_logger().warning(
                    "accusation.postponed",
                    submission_id=submission_id,
                    kind=type(error).__name__,
                    detail=str(error),
                )

    def open_cases(self) -> list[str]:
        """Submissions with a revealed slash verdict of ours whose case isn't closed."""
        rows = self._db.execute(
            "SELECT DISTINCT submission_id FROM verdict WHERE outcome = ? AND revealed"
            " AND submission_id NOT IN (SELECT submission_id FROM closed_case)",
            (Outcome.SLASH,),
        )
        return [row[0] for row in rows.fetchall()]

    def _advance(self, submission_id: str) -> None:
        case = self._chain.case_of(submission_id)
        if case.can_be_accused:
            self._try_to_accuse(submission_id)
        elif case.state is CaseState.ACCUSED and self._chain.time() >= case.deadline:
            self._enforce(submission_id)
        elif case.state.is_over:
            self._ended.setdefault(submission_id, self._chain.time())
            self._close(submission_id, case.state.name.lower())
        elif case.round == REAUDIT_ROUND:
            self._implicate(submission_id)

    def _reopen(self) -> None:
        """Go on with cases whose end a reorg has taken back: it may have dropped who ended them, too."""
        now = self._chain.time() if self._ended else 0
        for submission_id, seen_time in list(self._ended.items()):
            if now > seen_time + WATCHED_SECONDS:
                del self._ended[submission_id]
            elif not self._chain.case_of(submission_id).state.is_over:
                del self._ended[submission_id]
                self._db.execute("DELETE FROM closed_case WHERE submission_id = ?", (submission_id,))
                get_logger().warning("case.reopened", submission_id=submission_id)

    def _try_to_accuse(self, submission_id: str) -> None:
        """Accuse as soon as enough verdicts are revealed; give up long after the Court stopped listening."""
        received = self._history.received(submission_id)
        latest = self._history.settled(submission_id) or received
        # The Court counts from the epoch's commit, which comes a while after the event.
        if (
            received is None
            or latest is None
            or self._chain.time() > latest.time + 2 * self._chain.record().accuse_seconds
        ):
            self._close(submission_id, "too_late")
            return
        view = self._client.submission(submission_id)
        accusations = (assemble(view, received, round_, self._history, self._chain) for round_ in ROUNDS)
        accusation = next(filter(None, accusations), None)
        if accusation is None:
            return
        try:
            self._chain.accuse(accusation)
        except TransactionReverted as error:
            if error.name == TOO_LATE:
                self._close(submission_id, "too_late")
            elif error.name not in FIRST_COME:
                raise
        else:
            seats = [verdict.seat for verdict in accusation.verdicts]
            get_logger().info("submission.accused", submission_id=submission_id, seats=seats)

    def _implicate(self, submission_id: str) -> None:
        """Round 0 accepted what the re-audit condemns: who did answers for it, as far as the coordinator shows it.

        Verdicts may be revealed while the case is open, so it is asked in each turn.
        """
        try:
            verdicts = self._client.submission(submission_id).verdicts
        except (Unreachable, NotFound, Rejected) as error:
            # Other cases have deadlines too: this one is asked for again in the next turn.
            get_logger().warning("stage.postponed", stage="implicate", kind=type(error).__name__, detail=str(error))
            return
        looked_at = self._looked_at.setdefault(submission_id, set())
        new = [view for view in verdicts if view.verdict.signature not in looked_at]
        if new:
            implicate(self._chain, self._chain.record().pool_id, submission_id, new)
            looked_at.update(view.verdict.signature for view in new)

    def _enforce(self, submission_id: str) -> None:
        try:
            self._chain.enforce(submission_id)
        except TransactionReverted as error:
            if error.name not in FIRST_COME:
                raise
        else:
            get_logger().info("case.enforced", submission_id=submission_id)

    def _close(self, submission_id: str, how: str) -> None:
        self._looked_at.pop(submission_id, None)
        self._db.execute("INSERT OR IGNORE INTO closed_case VALUES (?)", (submission_id,))
        get_logger().info("case.closed", submission_id=submission_id, how=how)


def assemble(
    view: SubmissionView, received: Received, round_number: int, history: History, chain: PoolChain
) -> Accusation | None:
    """The accusation of a submission in a round, or None while fewer valid slash verdicts than the quorum agree."""
    submission = view.submission.check(view.submission.message.node, chain.domain)
    epoch = drawing_epoch(received, round_number, history)
    if submission.id(chain.domain) != received.submission_id or epoch is None:
        return None
    says = {
        "submission_id": received.submission_id,
        "epoch": epoch,
        "round": round_number,
        "rules_hash": submission.rules_hash,
        "outcome": Outcome.SLASH,
    }
    slashing = [verdict for verdict in view.verdicts if is_slash(verdict, says, chain.domain)]
    if len(slashing) < chain.record().slash_quorum:
        return None
    order = {drawn.seat.index: drawn for drawn in draw_order(submission, epoch, round_number, chain)}
    valid = [
        DrawnVerdict(verdict.verdict, order[verdict.verdict.message.seat].draw_index)
        for verdict in slashing
        if verdict.verdict.message.seat in order
        and verdict.validator == order[verdict.verdict.message.seat].seat.validator
    ]
    chosen = _agreeing(valid, chain.record().slash_quorum)
    if not chosen:
        return None
    settled = history.settled(received.submission_id) if round_number == REAUDIT_ROUND else None
    return Accusation(
        submission=submission,
        node_signature=view.submission.signature,
        inclusion=_shown(received, history),
        settling=NOT_SETTLED if settled is None else _shown(settled, history),
        verdicts=tuple(verdict.signed.message for verdict in chosen),
        signatures=tuple(verdict.signed.signature for verdict in chosen),
        draw_indexes=tuple(verdict.draw_index for verdict in chosen),
    )


def is_slash(view: VerdictView, says: Mapping[str, object], domain: SigningDomain) -> bool:
    """Whether this is its validator's signed verdict, slashable and with these members, as the Court will read it."""
    message = view.verdict.message
    if any(getattr(message, name) != value for name, value in says.items()):
        return False
    try:
        view.verdict.check(view.validator, domain)
    except SignatureInvalid:
        return False
    return bool(SLASHABLE_MASK >> message.reason & 1)


def _shown(leaf: Leaf, history: History) -> Inclusion:
    return Inclusion(leaf.epoch, leaf.log_index, hex0x(leaf.document.encode()), history.inclusion(leaf))


def _agreeing(verdicts: Iterable[DrawnVerdict], quorum: int) -> Sequence[DrawnVerdict]:
    """The first `quorum` verdicts, by draw, that give the same reason; empty where no reason has as many."""
    by_reason: dict[int, list[DrawnVerdict]] = {}
    for verdict in sorted(verdicts, key=lambda v: v.draw_index):
        same = by_reason.setdefault(verdict.signed.message.reason, [])
        same.append(verdict)
        if len(same) == quorum:
            return same
    return ()
