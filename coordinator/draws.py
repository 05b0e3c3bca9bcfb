"""Whose turn it is: seats drawn for each submission by the beacon of the epoch that anchored it.

In: submissions whose epoch has its beacon, the seats, the verdicts so far. Out: `Draw` rows, one a seat that is
to judge; who hasn't revealed after `reveal_epochs` has missed its turn, and the next seat is drawn, up to the pool's
`draw_limit` a round. Where no seat is left, the submission is disputed: neither paid nor used until one is.
Round 1 uses the same draws; when it comes is in `coordinator/reaudits.py`.
"""

from __future__ import annotations

from collections.abc import Collection
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
    """What the revealed verdicts of round 0 add up to."""
    return decide(opinions_on(session, submission_id, ROUND), pool.accept_quorum, pool.slash_quorum)


def opinions_on(session: Session, submission_id: str, round_number: int) -> list[Opinion]:
    """A round's revealed verdicts, in drawn order."""
    rows = session.scalars(
        select(VerdictRow)
        .where(VerdictRow.submission_id == submission_id, VerdictRow.round == round_number)
        .order_by(VerdictRow.draw)
    )
    return [Opinion(Outcome(row.outcome), row.reason) for row in rows]


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
            ~exists().where(Draw.submission_id == SubmissionRow.submission_id, Draw.round == ROUND, Draw.state == OPEN),
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
    draws = draws_of(session, submission.submission_id, ROUND)
    num_verdicts = sum(draw.state == REVEALED for draw in draws)
    drawn = next_seats(session, pool, submission, epoch, ROUND)[: max(0, decision.num_needed - num_verdicts)]
    for seat in drawn:
        open_draw(session, submission, ROUND, seat)
    if not drawn and submission.standing == Standing.RECEIVED:
        task = session.get_one(TaskRow, submission.task_id)
        move(session, task, Standing.DISPUTED, submission, num_verdicts=num_verdicts, num_needed=decision.num_needed)


def next_seats(
    session: Session,
    pool: Pool,
    submission: SubmissionRow,
    epoch: Epoch,
    round_number: int,
    passed_over: Collection[str] = (),
) -> list[DrawnSeat]:
    """Seats of the round that haven't had their turn, in drawn order, without those of validators in `passed_over`.

    Whoever is passed over here has its place among the round's `draw_limit` all the same, as on chain.
    """
    past = {draw.draw for draw in draws_of(session, submission.submission_id, round_number)}
    in_order = drawn_seats(
        epoch.beacon_hash or "",
        submission.submission_id,
        round_number,
        seats_at(session, pool.pool_id, epoch.epoch),
        epoch.epoch,
        {submission.provider, pool.coordinator, pool.trainer},
    )
    drawn = islice(in_order, pool.draw_limit)
    return [one for one in drawn if one.draw_index not in past and one.seat.validator not in passed_over]


def draws_of(session: Session, submission_id: str, round_number: int) -> list[Draw]:
    return list(session.scalars(select(Draw).where(Draw.submission_id == submission_id, Draw.round == round_number)))


def open_draw(session: Session, submission: SubmissionRow, round_number: int, drawn: DrawnSeat) -> None:
    """It is this seat's turn."""
    draw = Draw(
        submission_id=submission.submission_id,
        round=round_number,
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
