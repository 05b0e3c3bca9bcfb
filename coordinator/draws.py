"""Whose turn it is: seats drawn for each submission by the beacon of the epoch that anchored it.

In: submissions whose epoch has its beacon, the seats, the verdicts so far. Out: `Draw` rows, one a seat that is
to judge; who hasn't revealed after `reveal_epochs` has missed its turn, and the next seat is drawn, up to the pool's
`draw_limit` a round. Where no seat is left, the submission is disputed: neither paid nor used until one is.
"""

from __future__ import annotations

from itertools import islice

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.context import Coordinator
from coordinator.db.chain import Epoch, Pool
from coordinator.db.chain import Seat as SeatRow
from coordinator.db.work import Draw, SubmissionRow, TaskRow, VerdictRow
from coordinator.decision import Decision, Opinion, decide
from coordinator.pool import chain_time, pool_record
from coordinator.standing import UNSETTLED, move
from protocol.api import Standing
from protocol.draw import FOREVER, DrawnSeat, Seat, drawn_seats
from protocol.reasons import Outcome

ROUND = 0
MAX_PER_TURN = 200
OPEN, REVEALED, MISSED = "open", "revealed", "missed"


def open_draws(coordinator: Coordinator) -> None:
    """Stage of the loop: note missed turns, then draw seats where verdicts are wanting."""
    reveal_epochs = coordinator.config.reveal_epochs
    with coordinator.reading() as session:
        due = _overdue(session, reveal_epochs) or _waiting(session)
    if due:
        with coordinator.writing() as session:
            for draw in _overdue(session, reveal_epochs):
                _miss(session, draw)
            pool = pool_record(session, coordinator.config.pool_id)
            for submission, epoch in _waiting(session):
                _draw_for(session, pool, submission, epoch)


def decision_on(session: Session, pool: Pool, submission_id: str) -> Decision:
    """What the revealed verdicts add up to."""
    rows = session.scalars(
        select(VerdictRow).where(VerdictRow.submission_id == submission_id).order_by(VerdictRow.draw)
    )
    opinions = [Opinion(Outcome(row.outcome), row.reason) for row in rows]
    return decide(opinions, pool.accept_quorum, pool.slash_quorum)


def seats_at(session: Session, pool_id: int, epoch: int) -> list[Seat]:
    """The seats that can be drawn for `epoch`: those bonded later can't shift an earlier draw."""
    rows = session.scalars(
        select(SeatRow).where(SeatRow.pool_id == pool_id, SeatRow.active_from_epoch <= epoch).order_by(SeatRow.seat)
    )
    return [
        Seat(
            row.seat,
            row.validator,
            row.active_from_epoch,
            FOREVER if row.active_until_epoch is None else row.active_until_epoch,
        )
        for row in rows
    ]


def _overdue(session: Session, reveal_epochs: int) -> list[Draw]:
    latest = log.open_epoch(session) - reveal_epochs
    return list(
        session.scalars(
            select(Draw).where(Draw.state == OPEN, Draw.opened_epoch <= latest).order_by(Draw.submission_id, Draw.draw)
        )
    )


def _miss(session: Session, draw: Draw) -> None:
    draw.state = MISSED
    _note(session, "draw.missed", draw)


def _waiting(session: Session) -> list[tuple[SubmissionRow, Epoch]]:
    """Unsettled submissions without an open draw, disputed ones last, with the epoch whose beacon draws."""
    rows = session.execute(
        select(SubmissionRow, Epoch)
        .join(Epoch, Epoch.epoch == SubmissionRow.epoch)
        .where(
            SubmissionRow.standing.in_(UNSETTLED),
            Epoch.beacon_hash.is_not(None),
            ~exists().where(Draw.submission_id == SubmissionRow.submission_id, Draw.state == OPEN),
        )
        .order_by(SubmissionRow.standing == Standing.DISPUTED, SubmissionRow.log_index)
        .limit(MAX_PER_TURN)
    )
    return [(submission, epoch) for submission, epoch in rows]


def _draw_for(session: Session, pool: Pool, submission: SubmissionRow, epoch: Epoch) -> None:
    """Open as many draws as verdicts are wanting, or find that nobody is left to judge."""
    decision = decision_on(session, pool, submission.submission_id)
    if decision.accepted is not None:
        return
    draws = _draws(session, submission.submission_id)
    num_verdicts = sum(draw.state == REVEALED for draw in draws)
    num_seats = min(decision.num_needed - num_verdicts, pool.draw_limit - len(draws))
    drawn = _next_seats(session, pool, submission, epoch, num_seats) if num_seats > 0 else []
    for seat in drawn:
        _open(session, submission, seat)
    if not drawn and submission.standing == Standing.RECEIVED:
        task = session.get_one(TaskRow, submission.task_id)
        move(session, task, Standing.DISPUTED, submission, num_verdicts=num_verdicts, num_needed=decision.num_needed)


def _next_seats(
    session: Session, pool: Pool, submission: SubmissionRow, epoch: Epoch, num_seats: int
) -> list[DrawnSeat]:
    """The next seats in drawn order that haven't had their turn."""
    past = {draw.draw for draw in _draws(session, submission.submission_id)}
    in_order = drawn_seats(
        epoch.beacon_hash or "",
        submission.submission_id,
        ROUND,
        seats_at(session, pool.pool_id, epoch.epoch),
        epoch.epoch,
        {submission.provider, pool.coordinator, pool.trainer},
    )
    return list(islice((seat for seat in in_order if seat.draw_index not in past), num_seats))


def _draws(session: Session, submission_id: str) -> list[Draw]:
    return list(session.scalars(select(Draw).where(Draw.submission_id == submission_id, Draw.round == ROUND)))


def _open(session: Session, submission: SubmissionRow, drawn: DrawnSeat) -> None:
    draw = Draw(
        submission_id=submission.submission_id,
        round=ROUND,
        draw=drawn.draw_index,
        seat=drawn.seat.index,
        validator=drawn.seat.validator,
        opened_epoch=log.open_epoch(session),
        state=OPEN,
    )
    session.add(draw)
    _note(session, "draw.opened", draw)


def _note(session: Session, event_type: str, draw: Draw) -> None:
    log.append(
        session,
        event_type,
        draw.submission_id,
        chain_time(session),
        {"round": draw.round, "draw": draw.draw, "seat": draw.seat, "validator": draw.validator},
    )
