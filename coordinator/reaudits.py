"""Stage reaudit: settled work is judged again, by seats that a later beacon draws (round 1).

    settled ─▶ waiting ─┬─▶ not_due                       beacon(the epoch that anchors the settling) decides
                        └─▶ drawn ─┬─▶ agreed             its verdicts and round 0's together say the same
                            ▲      ├─▶ disagreed          they say something else: the submission stays challenged
                            │      └─▶ undecided          no seat is left that could say more
                            └───── agreed, disagreed      beacon(the epoch that anchors the end) picks it once more

Nobody knows beforehand what will be picked: that beacon is the hash of a block after every verdict of round 0. Nor does
the last seat of a re-audit: its end is picked in the same way, and then one more seat looks, at its stamp too.
A verdict of round 1 that contradicts the settling, and isn't outvoted, makes the submission `challenged` at once: it
isn't handed to the trainer. As in round 0, a split asks for the next seat; so does a work stamp that one seat disputes.
Validators of round 1 are paid like those of round 0, by the events `reaudit.agreed` and `reaudit.disagreed`.
What a disagreement costs (a case with round 1's verdicts before the Court, the bonds of the seats it condemns) isn't
decided here.
"""

from __future__ import annotations

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from coordinator import escrow, log
from coordinator.context import Coordinator
from coordinator.db.chain import Epoch, Pool
from coordinator.db.work import Draw, ReauditRow, SubmissionRow, TaskRow, VerdictRow
from coordinator.decision import Decision, decide_again
from coordinator.draws import OPEN, ROUND, next_seats, open_draw, opinions_on
from coordinator.earners import earners
from coordinator.pool import chain_time, pool_record
from coordinator.stamps import has_contested_stamp
from coordinator.standing import move
from protocol.api import ReauditState, Standing
from protocol.draw import REAUDIT_ROUND, is_reaudited

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
            asked_epoch=log.open_epoch(session),
            is_asking=True,
            num_wanted=0,
            paid=[],
            reserved_wei=reserved_wei,
        )
    )


def reaudit(coordinator: Coordinator) -> None:
    """Stage of the loop: pick what the beacons pick, draw its seats, and note what they say."""
    with coordinator.reading() as session:
        due = _asking(session) or _idle(session)
    if due:
        with coordinator.writing() as session:
            pool = pool_record(session, coordinator.config.pool_id)
            for row, epoch in _asking(session):
                _ask(session, pool, row, epoch)
            for row, submission, epoch in _idle(session):
                _advance(session, pool, row, submission, epoch)


def ask_again(session: Session, epoch: int) -> None:
    """The beacon of an epoch has changed (a reorg): what it has picked, and nobody has judged since, is asked anew.

    Re-audits that are over stay what they are.
    """
    asked = select(ReauditRow).where(ReauditRow.asked_epoch == epoch, ~ReauditRow.is_asking)
    for row in session.scalars(asked.where(ReauditRow.state.in_((ReauditState.NOT_DUE, ReauditState.DRAWN)))).all():
        own = (Draw.submission_id == row.submission_id, Draw.round == REAUDIT_ROUND, Draw.state == OPEN)
        session.execute(delete(Draw).where(*own))
        row.state, row.is_asking = ReauditState.WAITING, True


def _asking(session: Session) -> list[tuple[ReauditRow, Epoch]]:
    """Rows whose question can be answered now, oldest first."""
    rows = session.execute(
        select(ReauditRow, Epoch)
        .join(Epoch, Epoch.epoch == ReauditRow.asked_epoch)
        .where(ReauditRow.is_asking, Epoch.beacon_hash.is_not(None))
        .order_by(ReauditRow.asked_epoch, ReauditRow.submission_id)
        .limit(MAX_PER_TURN)
    )
    return [(row, epoch) for row, epoch in rows]


def _idle(session: Session) -> list[Due]:
    """Re-audits of which no seat is at work now, oldest first, with the epoch whose beacon draws."""
    at_work = exists().where(
        Draw.submission_id == ReauditRow.submission_id, Draw.round == REAUDIT_ROUND, Draw.state == OPEN
    )
    rows = session.execute(
        select(ReauditRow, SubmissionRow, Epoch)
        .join(SubmissionRow, SubmissionRow.submission_id == ReauditRow.submission_id)
        .join(Epoch, Epoch.epoch == ReauditRow.epoch)
        .where(ReauditRow.state == ReauditState.DRAWN, Epoch.beacon_hash.is_not(None), ~at_work)
        .order_by(SubmissionRow.log_index)
        .limit(MAX_PER_TURN)
    )
    return [(row, submission, epoch) for row, submission, epoch in rows]


def _ask(session: Session, pool: Pool, row: ReauditRow, epoch: Epoch) -> None:
    """One more seat, or none."""
    row.is_asking = False
    if is_reaudited(epoch.beacon_hash or "", row.submission_id, pool.reaudit_bps):
        row.state = ReauditState.DRAWN
        row.num_wanted = len(opinions_on(session, row.submission_id, REAUDIT_ROUND)) + 1
        log.append(session, "reaudit.drawn", row.submission_id, chain_time(session), {"epoch": epoch.epoch})
        return
    if row.state == ReauditState.WAITING:
        row.state = ReauditState.NOT_DUE
    _release(session, pool, row, row.reserved_wei)


def _advance(session: Session, pool: Pool, row: ReauditRow, submission: SubmissionRow, epoch: Epoch) -> None:
    """Note a contradiction, then close the re-audit or draw as many seats as verdicts are wanting."""
    decision = _decision(session, pool, row)
    _challenge(session, pool, row, submission)
    heard = list(session.scalars(select(VerdictRow.validator).where(VerdictRow.submission_id == row.submission_id)))
    drawn = next_seats(session, pool, submission, epoch, REAUDIT_ROUND, passed_over=heard)
    if decision.accepted is None and drawn:
        for seat in drawn[: decision.num_needed - len(heard)]:
            open_draw(session, submission, REAUDIT_ROUND, seat)
        return
    _close(session, pool, row, submission, decision if drawn else _decision(session, pool, row, is_final=True))
    if drawn and decision.accepted is not None:
        row.asked_epoch, row.is_asking = log.open_epoch(session), True
    else:
        _release(session, pool, row, row.reserved_wei)


def _decision(session: Session, pool: Pool, row: ReauditRow, *, is_final: bool = False) -> Decision:
    """What all verdicts add up to; where nobody can be asked any more, a contested stamp holds nothing up."""
    again = opinions_on(session, row.submission_id, REAUDIT_ROUND)
    return decide_again(
        opinions_on(session, row.submission_id, ROUND),
        again,
        pool.accept_quorum,
        pool.slash_quorum,
        num_wanted=max(1, min(row.num_wanted, len(again))) if is_final else row.num_wanted,
        is_contested=not is_final and has_contested_stamp(session, row.submission_id),
    )


def _challenge(session: Session, pool: Pool, row: ReauditRow, submission: SubmissionRow) -> None:
    """From the first verdict on that contradicts the settling, unless a majority for it is there already."""
    opinions = opinions_on(session, row.submission_id, REAUDIT_ROUND)
    against = next((opinion for opinion in opinions if opinion.accepts != row.accepted), None)
    stands = _decision(session, pool, row, is_final=True).accepted == row.accepted
    if against is not None and not stands and submission.standing != Standing.CHALLENGED:
        task = session.get_one(TaskRow, submission.task_id)
        move(session, task, Standing.CHALLENGED, submission, round=REAUDIT_ROUND, reason=against.reason)


def _close(session: Session, pool: Pool, row: ReauditRow, submission: SubmissionRow, decision: Decision) -> None:
    """Note what both rounds say together, and pay for it."""
    if decision.accepted is None:
        row.state = ReauditState.UNDECIDED
    else:
        row.state = ReauditState.AGREED if decision.accepted == row.accepted else ReauditState.DISAGREED
    payments = _pay(session, pool, row, submission, decision)
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
    """Who earns by it and isn't paid yet; as far as is reserved."""
    amount_wei = submission.num_units * session.get_one(TaskRow, submission.task_id).verify_price_wei
    if decision.accepted is None or not amount_wei:
        return {}
    agreeing = earners(session, row.submission_id, REAUDIT_ROUND, accepted=decision.accepted)
    earning = [validator for validator in agreeing if validator not in row.paid]
    payments = dict.fromkeys(earning[: row.reserved_wei // amount_wei], amount_wei)
    for address, paid_wei in payments.items():
        escrow.pay(session, pool.pool_id, address, paid_wei)
    row.paid = [*row.paid, *payments]
    _release(session, pool, row, sum(payments.values()))
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


def _release(session: Session, pool: Pool, row: ReauditRow, amount_wei: int) -> None:
    escrow.release(session, pool.pool_id, amount_wei)
    row.reserved_wei -= amount_wei
