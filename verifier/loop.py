"""The verifier's loop: one turn takes what is drawn from assignment to verdict, and what was promised further.

    prepare  consumes SHARDCAST versions            produces a model in memory      waits for a sealed version
    follow   consumes log entries and heads         produces the checked log        waits for a commitEpoch
    watch    consumes settled work, beacons         produces which re-audits are due  waits for a sealed beacon
    judge    consumes assignments, files, weights   produces kept verdicts          waits for a sealed beacon
    commit   consumes kept verdicts                 produces anchored-to-be roots   waits for nothing
    reveal   consumes anchored commitments          produces revealed verdicts      waits for the next commitEpoch
    accuse   consumes cases with enough slashes     produces accusations, slashes   waits for the appeal period
    jury     consumes cases before a jury           produces juries, votes, ends    waits for a block, colleagues
    attest   consumes proposed earnings             produces signatures             waits for a statement

Whoever doesn't answer costs its stage one turn, and never the process; neither does a disk that is full. A lie of the
coordinator is logged and gets no verdict. A fault of this verifier, met while judging, is logged with its traceback and
gets none either; that submission is tried again after the others.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from protocol.api import Assignment
from protocol.client import CoordinatorClient
from protocol.clock import Clock
from protocol.errors import NotFound, ProofpoolError, Rejected, Unreachable, VerificationFailed
from protocol.reasons import Outcome, RejectReason
from protocol.telemetry import get_logger
from verifier.accuse import Accuser
from verifier.attest import Attester
from verifier.chain import NUM_HEADS_ON_CHAIN, PoolChain
from verifier.commitments import Commitments
from verifier.draws import can_check
from verifier.history import History
from verifier.judge import Judge
from verifier.juror import Jurors
from verifier.reaudits import Reaudits
from verifier.verdicts import KeptVerdict, Verdicts

REVEAL_EPOCHS = 12
"""How many epochs long a reveal is offered again where the coordinator refuses it."""


class Verifier:
    """One validator at work in one pool. `turn` passes through all stages once; `run` repeats it."""

    def __init__(
        self,
        validator: str,
        chain: PoolChain,
        client: CoordinatorClient,
        history: History,
        verdicts: Verdicts,
        commitments: Commitments,
        judge: Judge,
        accuser: Accuser,
        attester: Attester,
        reaudits: Reaudits,
        jurors: Jurors,
        clock: Clock,
        judge_seconds: float,
    ) -> None:
        self.validator = validator
        self.chain = chain
        self.client = client
        self.history = history
        self.verdicts = verdicts
        self.commitments = commitments
        self._judge = judge
        self._accuser = accuser
        self._attester = attester
        self._reaudits = reaudits
        self._jurors = jurors
        self._clock = clock
        self._judge_seconds = judge_seconds
        self._failures: dict[str, int] = {}

    def run(self, stop: threading.Event, pause_seconds: float) -> None:
        """Turn until `stop`; the stage at hand is finished first."""
        while not stop.is_set():
            self.turn()
            self._clock.wait(stop, pause_seconds)

    def turn(self) -> None:
        """Each stage once."""
        stages = (
            self._judge.prepare,
            self.follow,
            self.watch,
            self.judge,
            self.commit,
            self.reveal,
            self._accuser.turn,
            self._jurors.turn,
            self._attester.turn,
        )
        for stage in stages:
            self._tolerating(stage)

    def follow(self) -> None:
        """Check the log up to the newest anchored head; leaves of heads that the chain forgot count to the next."""
        oldest = max(0, self.chain.num_epochs() - NUM_HEADS_ON_CHAIN)
        self.history.follow(self.chain.heads(max(oldest, self.history.num_epochs)), self.client.entries)

    def watch(self) -> None:
        """Ask the beacons which settled submissions are to be judged again."""
        self._reaudits.follow(self.chain)

    def judge(self) -> None:
        """Judge what is drawn and can be checked, for a while: the verdicts are then committed before their epoch ends.

        What failed here before comes last.
        """
        waiting = [a for a in self.client.assignments(self.validator) if self._is_due(a)]
        waiting.sort(key=lambda a: self._failures.get(a.submission_id, 0))
        started = self._clock.now()
        for assignment in waiting:
            self._judge_one(assignment)
            if self._clock.now() - started >= self._judge_seconds:
                return

    def commit(self) -> None:
        """Put new verdicts under a root of the open epoch, and send every root that isn't confirmed."""
        open_epoch = self.client.pool().epoch
        self.commitments.prepare(self.chain.record().pool_id, open_epoch)
        for signed in self.commitments.unsent():
            try:
                self.client.commit_verdicts(signed)
            except Rejected as error:
                get_logger().warning("commitment.refused", epoch=signed.message.epoch, detail=str(error))
                self.commitments.dissolve(signed.message)
            else:
                self.commitments.mark_sent(signed.message)

    def reveal(self) -> None:
        """Open the commitments whose epoch the chain anchors."""
        num_epochs = self.chain.num_epochs()
        for reveal in self.commitments.due_reveals(num_epochs):
            message = reveal.verdict.message
            try:
                self.client.reveal_verdict(reveal)
            except (Rejected, Unreachable, NotFound) as error:
                if not _is_early(error):
                    get_logger().warning("reveal.refused", submission_id=message.submission_id, detail=str(error))
                if num_epochs - reveal.commitment_epoch <= REVEAL_EPOCHS:
                    continue
            self.commitments.mark_revealed(reveal)

    def _is_due(self, assignment: Assignment) -> bool:
        kept = self.verdicts.find(assignment.submission_id, assignment.round, assignment.seat)
        return kept is None and can_check(assignment, self.history)

    def _judge_one(self, assignment: Assignment) -> None:
        log = get_logger().bind(submission_id=assignment.submission_id, seat=assignment.seat, round=assignment.round)
        try:
            verdict = self._judge.judge(assignment)
        except (Unreachable, VerificationFailed) as error:
            self._failures[assignment.submission_id] = self._failures.get(assignment.submission_id, 0) + 1
            log.warning("verdict.postponed", detail=str(error))
        except Exception:
            # One file must not stop the verdicts on all others; it gets none until this fault is mended.
            self._failures[assignment.submission_id] = self._failures.get(assignment.submission_id, 0) + 1
            log.exception("verdict.failed")
        else:
            _log_verdict(verdict)

    def _tolerating(self, stage: Callable[[], None]) -> None:
        try:
            stage()
        except (ProofpoolError, OSError, sqlite3.OperationalError) as error:
            name = stage.__qualname__.rpartition(".")[2]
            get_logger().warning("stage.postponed", stage=name, kind=type(error).__name__, detail=str(error))


def _is_early(error: ProofpoolError) -> bool:
    """Whether the coordinator's view of the chain is a block or two behind ours."""
    return isinstance(error, Rejected) and error.reason is RejectReason.RATE_LIMITED


def _log_verdict(verdict: KeptVerdict) -> None:
    message = verdict.message
    reason = message.reject_reason
    get_logger().info(
        "verdict.given",
        submission_id=message.submission_id,
        outcome=Outcome(message.outcome).name.lower(),
        reason=reason.value if reason else None,
        seat=message.seat,
        round=message.round,
        num_units=verdict.evidence.num_units,
        stamps_disputed=[(r.round, r.seat) for r in verdict.evidence.stamp_reviews if not r.agrees],
        measured={c.check: c.value for c in verdict.evidence.checks if c.value is not None},
    )
