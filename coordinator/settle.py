"""From verdicts to a decision: accepted is paid, rejected isn't, and validators are paid either way.

In: submissions with enough verdicts (`coordinator/decision.py`). Out: their standing, accounts credited, and
their groups put to use. Validators are paid for each verified token if their verdict came in time and agrees
with the decision, and its work stamp isn't disputed, in drawn order, at most `draw_limit` of them.
What is settled here may be judged again (`coordinator/reaudits.py`).
"""

from __future__ import annotations

from sqlalchemy import Select, exists, select
from sqlalchemy.orm import Session

from coordinator import escrow
from coordinator.context import Coordinator
from coordinator.db.chain import Pool
from coordinator.db.work import GroupRow, SubmissionRow, TaskRow, VerdictRow
from coordinator.decision import Decision
from coordinator.draws import ROUND, decision_on
from coordinator.earners import earners
from coordinator.pool import pool_record
from coordinator.reaudits import expect_reaudit
from coordinator.standing import UNSETTLED, move
from coordinator.use import put_to_use
from protocol.api import Standing

MAX_PER_TURN = 200


def settle(coordinator: Coordinator) -> None:
    """Stage of the loop: decide whatever can be decided."""
    with coordinator.reading() as session:
        pool = session.get(Pool, coordinator.config.pool_id)
        due = [] if pool is None else _decidable(session, pool)
    if due:
        with coordinator.writing() as session:
            pool = pool_record(session, coordinator.config.pool_id)
            for submission, decision in _decidable(session, pool):
                _settle(session, pool, submission, decision)


def _decidable(session: Session, pool: Pool) -> list[tuple[SubmissionRow, Decision]]:
    """Unsettled submissions whose verdicts decide them, oldest first, disputed ones last."""
    judged = session.scalars(
        select(SubmissionRow)
        .where(
            SubmissionRow.standing.in_(UNSETTLED),
            exists().where(VerdictRow.submission_id == SubmissionRow.submission_id),
        )
        .order_by(SubmissionRow.standing == Standing.DISPUTED, SubmissionRow.log_index)
        .limit(MAX_PER_TURN)
    )
    decisions = [(submission, decision_on(session, pool, submission.submission_id)) for submission in judged]
    return [(submission, decision) for submission, decision in decisions if decision.accepted is not None]


def _settle(session: Session, pool: Pool, submission: SubmissionRow, decision: Decision) -> None:
    task = session.get_one(TaskRow, submission.task_id)
    accepted = decision.accepted is True
    amount_wei = submission.num_units * task.price_wei if accepted else 0
    payments = _validator_payments(session, pool, task, submission, accepted)
    num_paid = len(payments)
    if amount_wei:
        payments[submission.provider] = amount_wei
    for address, paid_wei in payments.items():
        escrow.pay(session, pool.pool_id, address, paid_wei)
    submission.reason = decision.reason
    move(
        session,
        task,
        Standing.ACCEPTED if accepted else Standing.REJECTED,
        submission,
        node=submission.node,
        provider=submission.provider,
        reason=decision.reason,
        num_units=submission.num_units,
        amount_wei=str(amount_wei),
        payments=[[address, str(paid_wei)] for address, paid_wei in payments.items()],
    )
    expect_reaudit(session, pool, submission, task.verify_price_wei, accepted=accepted, num_paid=num_paid)
    if accepted:
        for group in session.scalars(_groups_of(submission)).all():
            put_to_use(session, group)


def _validator_payments(
    session: Session, pool: Pool, task: TaskRow, submission: SubmissionRow, accepted: bool
) -> dict[str, int]:
    """What each validator earns by its verdict, in base units."""
    amount_wei = submission.num_units * task.verify_price_wei
    earning = earners(session, submission.submission_id, ROUND, accepted=accepted)
    return dict.fromkeys(earning[: pool.draw_limit], amount_wei) if amount_wei else {}


def _groups_of(submission: SubmissionRow) -> Select[GroupRow]:
    return select(GroupRow).where(GroupRow.submission_id == submission.submission_id).order_by(GroupRow.group)
