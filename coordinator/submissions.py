"""Submissions as others see them: one with its verdicts, a page of many, the case against one.

In: rows. Out: `SubmissionView`, `Assignment` and `CaseFile` of `protocol/api.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, and_, case, func, or_, select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.db.chain import Epoch
from coordinator.db.log import Event
from coordinator.db.work import Draw, ReauditRow, SubmissionRow, TaskRow, VerdictRow
from coordinator.draws import MISSED, OPEN, ROUND
from coordinator.log_nodes import LogNodes
from coordinator.renewals import renewal_of
from coordinator.stamps import votes_on
from coordinator.standing import UNSETTLED
from protocol.api import (
    Assignment,
    CaseFile,
    CaseVerdict,
    InclusionProof,
    ReauditState,
    ReauditView,
    SettlingView,
    Standing,
    SubmissionView,
    VerdictView,
)
from protocol.canonical import hex0x, sha256
from protocol.draw import REAUDIT_ROUND
from protocol.errors import NotFound
from protocol.merkle.history import inclusion_proof
from protocol.wire import Evidence, Signed, Submission, Task, Verdict

MAX_ASSIGNMENTS = 256
SETTLING = ("submission.accepted", "submission.rejected")


def submission_row(session: Session, submission_id: str) -> SubmissionRow:
    """Raises NotFound where no such submission was ever received."""
    row = session.get(SubmissionRow, submission_id)
    if row is None:
        raise NotFound("no such submission", submission_id, "GET /v1/submissions lists them")
    return row


def submission_view(session: Session, row: SubmissionRow, verdicts: Sequence[VerdictRow] = ()) -> SubmissionView:
    task = session.get_one(TaskRow, row.task_id)
    votes = votes_on(session, row.submission_id) if verdicts else {}
    return SubmissionView(
        submission_id=row.submission_id,
        provider=row.provider,
        submission=Signed[Submission].model_validate(row.signed_submission),
        task=Signed[Task].model_validate(task.signed_task),
        standing=Standing(row.standing),
        reason=row.reason,
        file_sha256=row.file_sha256,
        num_bytes=row.num_bytes,
        num_rollouts=row.num_rollouts,
        num_units=row.num_units,
        received_time=row.received_time,
        epoch=row.epoch,
        log_index=row.log_index,
        verdicts=tuple(_verdict_view(verdict, votes.get((verdict.round, verdict.seat))) for verdict in verdicts),
        settling=_settling_view(session, row.submission_id),
        reaudit=_reaudit_view(session, row.submission_id),
        renewal=renewal_of(task),
    )


def submission_page(
    session: Session, after: int, limit: int, node: str | None, standing: Standing | None
) -> list[SubmissionView]:
    """Submissions in the order in which they came, past log index `after`; without their verdicts."""
    query = select(SubmissionRow).where(SubmissionRow.log_index > after).order_by(SubmissionRow.log_index).limit(limit)
    if node is not None:
        query = query.where(SubmissionRow.node == node)
    if standing is not None:
        query = query.where(SubmissionRow.standing == standing)
    return [submission_view(session, row) for row in session.scalars(query).all()]


def verdicts_on(session: Session, submission_id: str) -> list[VerdictRow]:
    """In drawn order."""
    return list(
        session.scalars(
            select(VerdictRow)
            .where(VerdictRow.submission_id == submission_id)
            .order_by(VerdictRow.round, VerdictRow.draw)
        )
    )


def assignments(session: Session, validator: str) -> list[Assignment]:
    """What this validator's seats have to judge, oldest first; a missed turn can be made up for until it is settled."""
    drawing_epoch = case((Draw.round == REAUDIT_ROUND, ReauditRow.epoch), else_=SubmissionRow.epoch)
    num_revealed = select(func.count()).where(VerdictRow.submission_id == Draw.submission_id).scalar_subquery()
    rows = session.execute(
        select(Draw, SubmissionRow, TaskRow, Epoch, num_revealed)
        .join(SubmissionRow, SubmissionRow.submission_id == Draw.submission_id)
        .join(TaskRow, TaskRow.task_id == SubmissionRow.task_id)
        .outerjoin(ReauditRow, ReauditRow.submission_id == Draw.submission_id)
        .join(Epoch, Epoch.epoch == drawing_epoch)
        .where(Draw.validator == validator, Draw.state.in_((OPEN, MISSED)), _is_wanted())
        .order_by(Draw.state.desc(), SubmissionRow.log_index)
        .limit(MAX_ASSIGNMENTS)
    )
    verdict_epoch = log.open_epoch(session)
    return [
        Assignment(
            submission_id=submission.submission_id,
            provider=submission.provider,
            submission=Signed[Submission].model_validate(submission.signed_submission),
            task=Signed[Task].model_validate(task.signed_task),
            file_sha256=submission.file_sha256,
            epoch=epoch.epoch,
            beacon_hash=epoch.beacon_hash,
            round=draw.round,
            draw=draw.draw,
            seat=draw.seat,
            num_revealed=revealed,
            verdict_epoch=verdict_epoch,
            renewal=renewal_of(task),
        )
        for draw, submission, task, epoch, revealed in rows
    ]


def _is_wanted() -> ColumnElement[bool]:
    """Whether a draw's verdict still decides something."""
    return or_(
        and_(Draw.round == ROUND, SubmissionRow.standing.in_(UNSETTLED)),
        and_(Draw.round == REAUDIT_ROUND, ReauditRow.state == ReauditState.DRAWN),
    )


def case_file(session: Session, submission_id: str) -> CaseFile:
    """All that Court.accuse asks for. Raises NotFound until the submission is anchored."""
    row = submission_row(session, submission_id)
    event = session.get_one(Event, row.log_index)
    return CaseFile(
        submission=Signed[Submission].model_validate(row.signed_submission),
        event_hash=hex0x(sha256(event.document)),
        inclusion=_inclusion(session, event),
        verdicts=tuple(
            CaseVerdict(
                validator=verdict.validator,
                draw=verdict.draw,
                verdict=Signed[Verdict].model_validate(verdict.signed_verdict),
            )
            for verdict in verdicts_on(session, submission_id)
        ),
    )


def _inclusion(session: Session, event: Event) -> InclusionProof:
    """Under the first anchored head that holds the leaf."""
    anchor = session.scalar(
        select(Epoch).where(Epoch.size > event.index, Epoch.block.is_not(None)).order_by(Epoch.epoch).limit(1)
    )
    if anchor is None:
        raise NotFound("the submission isn't anchored yet", f"leaf {event.index}", "wait for the next epoch")
    return InclusionProof(
        index=event.index,
        leaf_hash=event.leaf_hash,
        size=anchor.size,
        root=anchor.root,
        epoch=anchor.epoch,
        path=inclusion_proof(LogNodes(session), event.index, anchor.size),
    )


def _settling_view(session: Session, submission_id: str) -> SettlingView | None:
    """By the first event that settles it; a later one reinstates what a re-audit had challenged."""
    event = session.scalar(
        select(Event).where(Event.subject == submission_id, Event.type.in_(SETTLING)).order_by(Event.index).limit(1)
    )
    if event is None:
        return None
    anchor = log.epoch_of_leaf(session, event.index)
    return SettlingView(
        log_index=event.index,
        epoch=anchor.epoch if anchor is not None else log.open_epoch(session),
        amount_wei=int(json.loads(event.document)["data"]["amount_wei"]),
    )


def _reaudit_view(session: Session, submission_id: str) -> ReauditView | None:
    row = session.get(ReauditRow, submission_id)
    return None if row is None else ReauditView(state=ReauditState(row.state), epoch=row.epoch)


def _verdict_view(row: VerdictRow, votes: Mapping[bool, int] | None) -> VerdictView:
    return VerdictView(
        validator=row.validator,
        verdict=Signed[Verdict].model_validate(row.signed_verdict),
        evidence=Evidence.model_validate(row.evidence),
        num_stamp_agreeing=votes.get(True, 0) if votes else 0,
        num_stamp_disputing=votes.get(False, 0) if votes else 0,
    )
