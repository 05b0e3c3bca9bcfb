"""Cases before a jury: any verifier seats it and carries out its finding, and whoever is drawn judges again and votes.

    summoned ─ the beacon's block ─▶ seated ─ judge, keep vote and salt ─▶ committed ─▶ revealed ─▶ resolved

In: the summons, the coordinator's files, the checks of `judge.py` over every row; of a dispute over earnings, the
checked log and the chain's prices. Out: transactions. Vote and salt are on disk before anybody sees their commitment,
so a restart commits to the same and can always reveal it. Colleagues send the same calls, so one that was first is no
fault.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable

from protocol.api import SubmissionView
from protocol.canonical import hex0x
from protocol.chain.cases import DisputeRecord, Juror, JuryRecord, Vote, vote_commitment
from protocol.client import CoordinatorClient
from protocol.draw import jury_seats
from protocol.errors import NotFound, ProofpoolError, Rejected, TransactionReverted, Unreachable, VerificationFailed
from protocol.reasons import Outcome
from protocol.telemetry import get_logger
from verifier.case import check_answered
from verifier.chain import PoolChain
from verifier.history import History
from verifier.judge import Judge
from verifier.pipeline import Finding
from verifier.roots import judge_root
from verifier.store import transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS jury_case (case_id TEXT PRIMARY KEY, is_over INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jury_summons (
    case_id TEXT NOT NULL, block_hash TEXT NOT NULL, PRIMARY KEY (case_id, block_hash)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jury_cursor (id INTEGER PRIMARY KEY CHECK (id = 0), block INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS jury_vote (
    case_id TEXT NOT NULL, beacon_block INTEGER NOT NULL, seat INTEGER NOT NULL,
    vote INTEGER NOT NULL, salt TEXT NOT NULL, PRIMARY KEY (case_id, beacon_block, seat)
) STRICT, WITHOUT ROWID;
"""

PATIENCE = 8
"""Evidence that can't be had is asked for until this part of the jury's whole period is left to commit in."""
WATCHED_SECONDS = 900
"""How long after its end a case is looked at, in chain seconds: a reorg may take the end back."""
REORG_BLOCKS = 64
"""Blocks that were looked at are looked at again: another one may be in their place, or a node had been behind."""
FIRST_COME = frozenset(
    {"AlreadySeated", "AlreadyCommitted", "AlreadyRevealed", "BeaconPending", "NoJury", "TooEarly", "TooLate"}
    | {"WrongState", "NoDispute"}
)
"""Refusals that say a colleague was first, or the chain's clock is a block away."""


class Jurors:
    """Follows every case of the pool that is before a jury, and votes for the seats of `validator`."""

    def __init__(
        self,
        db: sqlite3.Connection,
        validator: str,
        chain: PoolChain,
        client: CoordinatorClient,
        history: History,
        judge: Judge,
    ) -> None:
        self._db = db
        self._validator = validator
        self._chain = chain
        self._client = client
        self._history = history
        self._judge = judge
        self._ended: dict[str, int] = {}
        """Cases that no jury was before any more, and when that was seen first."""
        db.executescript(SCHEMA)

    def turn(self) -> None:
        """One step further with each case before a jury; one that can't go on keeps no other from it."""
        self._look()
        self._reopen()
        for case_id in self.open_cases():
            try:
                self._advance(case_id)
            except ProofpoolError as error:
                get_logger().warning("jury.postponed", case_id=case_id, kind=type(error).__name__, detail=str(error))
            except Exception:
                # One file must not stop the votes on all others; it gets none until this fault is mended.
                get_logger().exception("jury.failed", case_id=case_id)

    def open_cases(self) -> list[str]:
        return [row[0] for row in self._db.execute("SELECT case_id FROM jury_case WHERE NOT is_over ORDER BY case_id")]

    def _look(self) -> None:
        """Note whatever was summoned since the last look, or before it in blocks that a reorg has put there since.

        A case may get a second jury: it is open once more.
        """
        row = self._db.execute("SELECT block FROM jury_cursor").fetchone()
        summons, next_block = self._chain.juries_summoned(None if row is None else max(0, row[0] - REORG_BLOCKS))
        for one in summons:
            with transaction(self._db):
                new = self._db.execute(
                    "INSERT OR IGNORE INTO jury_summons VALUES (?, ?)", (one.case_id, one.block_hash)
                )
                if new.rowcount:
                    self._db.execute("INSERT OR REPLACE INTO jury_case VALUES (?, 0)", (one.case_id,))
        # After the cases: killed in between, the same blocks are looked at again.
        self._db.execute("INSERT OR REPLACE INTO jury_cursor VALUES (0, ?)", (next_block,))

    def _advance(self, case_id: str) -> None:
        case, jury, now = self._chain.case_of(case_id), self._chain.jury_of(case_id), self._chain.time()
        dispute = self._chain.dispute_of(case_id)
        if jury is None or not (dispute or case.state.is_before_jury):
            self._ended.setdefault(case_id, now)
            self._close(case_id, case.state.name.lower())
        elif jury.is_complete or now >= jury.deadline:
            self._send("jury.resolved", case_id, lambda: self._resolve(case_id, dispute))
        elif not jury.is_seated:
            self._seat(case_id, jury)
        else:
            for position, juror in enumerate(jury.jurors):
                if juror.validator == self._validator:
                    self._serve(case_id, jury, position, juror, now)

    def _reopen(self) -> None:
        """Go on with cases whose end a reorg has taken back: it may have dropped who ended them, too."""
        now = self._chain.time() if self._ended else 0
        for case_id, seen_time in list(self._ended.items()):
            if now > seen_time + WATCHED_SECONDS:
                del self._ended[case_id]
            elif self._is_before_jury(case_id):
                del self._ended[case_id]
                self._db.execute("UPDATE jury_case SET is_over = 0 WHERE case_id = ?", (case_id,))
                get_logger().warning("case.reopened", submission_id=case_id)

    def _is_before_jury(self, case_id: str) -> bool:
        is_open = self._chain.case_of(case_id).state.is_before_jury or self._chain.dispute_of(case_id) is not None
        return is_open and self._chain.jury_of(case_id) is not None

    def _resolve(self, case_id: str, dispute: DisputeRecord | None) -> None:
        if dispute is None:
            self._chain.resolve(case_id)
        else:
            self._chain.resolve_dispute(dispute.epoch)

    def _seat(self, case_id: str, jury: JuryRecord) -> None:
        """Call the jury once its beacon is there. Too few eligible seats are no jury: the case then lapses."""
        beacon, size = self._chain.jury_beacon(jury.beacon_block), self._chain.jury_terms().jury_size
        if beacon is None:
            return
        parties = self._chain.parties_of(case_id)
        drawn = jury_seats(beacon, case_id, self._chain.seats(), jury.epoch, parties, size)
        if len(drawn) == size:
            indexes = [found.draw_index for found in drawn]
            self._send("jury.called", case_id, lambda: self._chain.call_jury(case_id, indexes))

    def _serve(self, case_id: str, jury: JuryRecord, position: int, juror: Juror, now: int) -> None:
        """What this juror can do now: commit in time, or reveal."""
        key = (case_id, jury.beacon_block, juror.seat)
        if not juror.has_committed:
            if now < jury.commit_deadline:
                vote, salt = self._kept(key) or self._keep(key, self._vote(case_id, jury, now))
                commitment = vote_commitment(case_id, juror.seat, vote, salt)
                self._send("vote.committed", case_id, lambda: self._chain.commit_vote(case_id, position, commitment))
        elif juror.vote is Vote.NONE and jury.can_reveal(now):
            kept = self._kept(key)
            if kept is None or vote_commitment(case_id, juror.seat, *kept) != juror.commitment:
                raise VerificationFailed(
                    "a vote of ours can't be revealed", f"seat {juror.seat}: its salt isn't in this data folder"
                )
            self._send("vote.revealed", case_id, lambda: self._chain.reveal_vote(case_id, position, *kept))

    def _vote(self, case_id: str, jury: JuryRecord, now: int) -> Vote:
        """Judge it again. Evidence that can't be had is waited for, and says so with its vote when time runs out."""
        try:
            dispute = self._chain.dispute_of(case_id)
            if dispute is not None:
                return judge_root(dispute, self._history, self._chain)
            finding = self._examine(case_id)
        except (Unreachable, NotFound, Rejected, VerificationFailed) as error:
            # From the seating there is half of the period to commit in.
            if jury.commit_deadline - now > 2 * (jury.deadline - jury.commit_deadline) // PATIENCE:
                raise
            get_logger().warning("evidence.unavailable", case_id=case_id, detail=str(error))
            return Vote.UNAVAILABLE
        return Vote.UPHOLD if finding.outcome is Outcome.SLASH else Vote.OVERTURN

    def _examine(self, case_id: str) -> Finding:
        """All checks over every row. Raises VerificationFailed where what is served isn't what the node signed."""
        view, received = self._client.submission(case_id), self._history.received(case_id)
        if received is None:
            raise VerificationFailed("the checked log doesn't have a case's submission", case_id)
        check_served(view, case_id, self._chain)
        finding = self._judge.look_again(view, received)
        claimed = view.submission.message.content_hash
        if finding.case is None or finding.case.content_hash != claimed:
            found = None if finding.case is None else finding.case.content_hash
            raise VerificationFailed("the coordinator serves another file than was signed", f"{found}, not {claimed}")
        return finding

    def _kept(self, key: tuple[str, int, int]) -> tuple[Vote, str] | None:
        row = self._db.execute(
            "SELECT vote, salt FROM jury_vote WHERE case_id = ? AND beacon_block = ? AND seat = ?", key
        ).fetchone()
        return None if row is None else (Vote(row[0]), row[1])

    def _keep(self, key: tuple[str, int, int], vote: Vote) -> tuple[Vote, str]:
        """Make it durable; a vote that was kept before stands."""
        salt = hex0x(secrets.token_bytes(32))
        self._db.execute("INSERT OR IGNORE INTO jury_vote VALUES (?, ?, ?, ?, ?)", (*key, int(vote), salt))
        get_logger().info("vote.given", case_id=key[0], seat=key[2], vote=vote.name.lower())
        return self._kept(key) or (vote, salt)

    def _send(self, event: str, case_id: str, call: Callable[[], None]) -> None:
        try:
            call()
        except TransactionReverted as error:
            if error.name not in FIRST_COME:
                raise
        else:
            get_logger().info(event, case_id=case_id)

    def _close(self, case_id: str, how: str) -> None:
        self._db.execute("UPDATE jury_case SET is_over = 1 WHERE case_id = ?", (case_id,))
        get_logger().info("case.closed", submission_id=case_id, how=how)


def check_served(view: SubmissionView, case_id: str, chain: PoolChain) -> None:
    """Submission and task are those that the node signed and answered, under the chain's beacon.

    Else a coordinator could have a jury judge something else. Raises VerificationFailed.
    """
    claim, task = view.submission.message, view.task.message
    view.submission.check(claim.node, chain.domain)
    view.task.check(chain.record().coordinator, chain.domain)
    if claim.id(chain.domain) != case_id:
        raise VerificationFailed("the coordinator serves another submission for a case", f"{case_id}: {claim}")
    check_answered(task, claim, chain.version(claim.policy_version).beacon_hash)
