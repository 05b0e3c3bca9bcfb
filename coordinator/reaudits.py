"""Stage reaudit: settled work is judged again, by seats that a later beacon draws (round 1).

    settled ─▶ waiting ─┬─▶ passed                        beacon(the epoch that anchors the settling) decides
                        └─▶ drawn ─┬─▶ agreed             its verdicts and round 0's together say the same
                                   ├─▶ disagreed          they say something else: the submission stays challenged
                                   └─▶ undecided          no seat is left that could say more

Nobody knows beforehand what will be picked: that beacon is the hash of a block after every verdict of round 0.
A verdict of round 1 that contradicts the settling makes the submission `challenged` at once: it isn't handed to the
trainer. As in round 0, a split asks for the next seat; so does a work stamp that one seat disputes. Validators of
round 1 are paid like those of round 0, by the events `reaudit.agreed` and `reaudit.disagreed`.
What a disagreement costs (a case with round 1's verdicts before the Court, the bonds of the seats it condemns) isn't
decided here.
"""

from __future__ import annotations

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from coordinator import escrow, log
from coordinator.context import Coordinator
from coordinator.db.chain import Epoch, Pool
from coordinator.db.work import Draw, ReauditRow, SubmissionRow, TaskRow, VerdictRow
from coordinator.decision import Decision, decide_again
from coordinator.draws import OPEN, ROUND, next_seats, open_draw, opinions_on
from coordinator.pool import chain_time, pool_record
from coordinator.stamps import disputed_stamps, has_contested_stamp
from coordinator.standing import move
from protocol.api import ReauditState, Standing
from protocol.draw import REAUDIT_ROUND, is_reaudited
from protocol.reasons import Outcome

MAX_PER_TURN = 200
Due = tuple[ReauditRow, SubmissionRow, Epoch]


def expect_reaudit(
    session: Session, pool: Pool, submission: SubmissionRow, verify_price_wei: int, *, accepted: bool, num_paid: int
) -> None:
    """A submission has just been settled: the open epoch's beacon will say whether it is judged again.

    What its validators may earn is reserved: of `draw_limit` in all, those that round 0 didn't pay.
    """
    if not pool.reaudit_bps:
        return
    reserved_wei = max(0, pool.draw_limit - num_paid) * submission.num_units * verify_price_wei
    escrow.reserve(session, pool.pool_id, reserved_wei)
    session.add(
        ReauditRow(
            submission_id=submission.submission_id,
            epoch=log.open_epoch(session),
            accepted=accepted,
            state=ReauditState.WAITING,
            reserved_wei=reserved_wei,
        )
    )


def reaudit(coordinator: Coordinator) -> None:
    """Stage of the loop: pick what the beacons pick, draw its seats, and note what they say."""
    with coordinator.reading() as session:
        due = _undecided(session, ReauditState.WAITING) or _undecided(session, ReauditState.DRAWN)
    if due:
        with coordinator.writing() as session:
            pool = pool_record(session, coordinator.config.pool_id)
            for row, submission, epoch in _undecided(session, ReauditState.WAITING):
                _pick(session, pool, row, submission, epoch)
            for row, submission, epoch in _undecided(session, ReauditState.DRAWN):
                _advance(session, pool, row, submission, epoch)


def _undecided(session: Session, state: ReauditState) -> list[Due]:
    """Rows in this state whose epoch has its beacon, and of which no seat is at work now, oldest first."""
    at_work = exists().where(
        Draw.submission_id == ReauditRow.submission_id, Draw.round == REAUDIT_ROUND, Draw.state == OPEN
    )
    rows = session.execute(
        select(ReauditRow, SubmissionRow, Epoch)
        .join(SubmissionRow, SubmissionRow.submission_id == ReauditRow.submission_id)
        .join(Epoch, Epoch.epoch == ReauditRow.epoch)
        .where(ReauditRow.state == state, Epoch.beacon_hash.is_not(None), ~at_work)
        .order_by(SubmissionRow.log_index)
        .limit(MAX_PER_TURN)
    )
    return [(row, submission, epoch) for row, submission, epoch in rows]


def _pick(session: Session, pool: Pool, row: ReauditRow, submission: SubmissionRow, epoch: Epoch) -> None:
    if is_reaudited(epoch.beacon_hash or "", submission.submission_id, pool.reaudit_bps):
        row.state = ReauditState.DRAWN
        log.append(session, "reaudit.drawn", row.submission_id, chain_time(session), {"epoch": row.epoch})
    else:
        row.state = ReauditState.PASSED
        _release(session, pool, row)


def _advance(session: Session, pool: Pool, row: ReauditRow, submission: SubmissionRow, epoch: Epoch) -> None:
    """Note a contradiction, then close the re-audit or draw as many seats as verdicts are wanting."""
    decision = _decision(session, pool, row)
    _challenge(session, row, submission)
    if decision.accepted is not None:
        _close(session, pool, row, submission, decision)
        return
    num_verdicts = session.query(VerdictRow).filter(VerdictRow.submission_id == row.submission_id).count()
    heard = set(session.scalars(select(VerdictRow.validator).where(VerdictRow.submission_id == row.submission_id)))
    drawn = next_seats(session, pool, submission, epoch, REAUDIT_ROUND, passed_over=heard)
    for seat in drawn[: decision.num_needed - num_verdicts]:
        open_draw(session, submission, REAUDIT_ROUND, seat)
    if not drawn:
        _close(session, pool, row, submission, _decision(session, pool, row, is_final=True))


def _decision(session: Session, pool: Pool, row: ReauditRow, *, is_final: bool = False) -> Decision:
    """What all verdicts add up to; where nobody can be asked any more, a contested stamp holds nothing up."""
    return decide_again(
        opinions_on(session, row.submission_id, ROUND),
        opinions_on(session, row.submission_id, REAUDIT_ROUND),
        pool.accept_quorum,
        pool.slash_quorum,
        is_contested=not is_final and has_contested_stamp(session, row.submission_id),
    )


def _challenge(session: Session, row: ReauditRow, submission: SubmissionRow) -> None:
    """From the first verdict on that contradicts the settling."""
    opinions = opinions_on(session, row.submission_id, REAUDIT_ROUND)
    against = next((opinion for opinion in opinions if opinion.accepts != row.accepted), None)
    if against is not None and submission.standing != Standing.CHALLENGED:
        task = session.get_one(TaskRow, submission.task_id)
        move(session, task, Standing.CHALLENGED, submission, round=REAUDIT_ROUND, reason=against.reason)


def _close(session: Session, pool: Pool, row: ReauditRow, submission: SubmissionRow, decision: Decision) -> None:
    if decision.accepted is None:
        row.state = ReauditState.UNDECIDED
    else:
        row.state = ReauditState.AGREED if decision.accepted == row.accepted else ReauditState.DISAGREED
    payments = _pay(session, pool, row, submission, decision)
    _release(session, pool, row)
    log.append(
        session,
        f"reaudit.{row.state}",
        row.submission_id,
        chain_time(session),
        {
            "epoch": row.epoch,
            "accepted": decision.accepted,
            "num_units": submission.num_units,
            "payments": [[address, str(paid_wei)] for address, paid_wei in payments.items()],
        },
    )
    if row.state == ReauditState.AGREED and submission.standing == Standing.CHALLENGED:
        _reinstate(session, row, submission)


def _pay(
    session: Session, pool: Pool, row: ReauditRow, submission: SubmissionRow, decision: Decision
) -> dict[str, int]:
    """Whoever came in time, is of the majority's mind, and whose work stamp isn't disputed; as far as is reserved."""
    amount_wei = submission.num_units * session.get_one(TaskRow, submission.task_id).verify_price_wei
    if decision.accepted is None or not amount_wei:
        return {}
    disputed = disputed_stamps(session, row.submission_id)
    verdicts = session.scalars(
        select(VerdictRow)
        .where(VerdictRow.submission_id == row.submission_id, VerdictRow.round == REAUDIT_ROUND, VerdictRow.in_time)
        .order_by(VerdictRow.draw)
    )
    earning = [
        verdict.validator
        for verdict in verdicts
        if (verdict.outcome == Outcome.ACCEPT) == decision.accepted and (verdict.round, verdict.seat) not in disputed
    ]
    payments = dict.fromkeys(earning[: row.reserved_wei // amount_wei], amount_wei)
    for address, paid_wei in payments.items():
        escrow.pay(session, pool.pool_id, address, paid_wei)
    return payments


def _reinstate(session: Session, row: ReauditRow, submission: SubmissionRow) -> None:
    """The settling stands after all; it was paid then."""
    move(
        session,
        session.get_one(TaskRow, submission.task_id),
        Standing.ACCEPTED if row.accepted else Standing.REJECTED,
        submission,
        round=REAUDIT_ROUND,
        reason=submission.reason,
        num_units=submission.num_units,
        amount_wei="0",
        payments=[],
    )


def _release(session: Session, pool: Pool, row: ReauditRow) -> None:
    escrow.release(session, pool.pool_id, row.reserved_wei)
    row.reserved_wei = 0
