"""The whole row of one submission, from its lease to what the chain says of it.

In: a submission's id, or another that the log has leaves about. Out: `Trace`: a stage an arrow of the flow table, as
far as it has come, and what happened, as the log tells it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import Select, or_, select
from sqlalchemy.orm import Session

from coordinator.audit import StoredLog
from coordinator.context import Coordinator
from coordinator.db.chain import ChainEvent, Epoch, Pool, Version
from coordinator.db.log import Event
from coordinator.db.work import BatchRow, GroupRow, ReauditRow, SubmissionRow, TaskRow
from coordinator.pool import freshness, pool_record
from coordinator.stamps import votes_on
from coordinator.submissions import verdicts_on
from protocol.api import BatchOffer
from protocol.errors import NotFound
from protocol.events import related_events
from protocol.fate import fate_of
from protocol.reasons import Outcome, RejectReason
from protocol.trace import Trace, TraceStage
from protocol.wire import ZERO_HASH

SHOWN_ARGUMENTS = ("submission_id", "epoch", "version", "root", "size", "manifest_hash", "reason", "amount", "slashed")


def trace(coordinator: Coordinator, session: Session, subject: str) -> Trace:
    """Raises NotFound where the log has nothing about it."""
    pool = pool_record(session, coordinator.config.pool_id)
    related = None if subject == ZERO_HASH else related_events(StoredLog(session, pool.max_async), subject)
    if related is None or not related.events:
        raise NotFound("the log has nothing about this", subject, "GET /v1/submissions lists submissions")
    row = session.get(SubmissionRow, related.submission_id or subject)
    return Trace(
        subject=subject,
        submission_id=None if row is None else row.submission_id,
        what_happened=fate_of(related),
        stages=tuple(_rest(session, pool, subject) if row is None else _row(session, pool, row)),
        freshness=freshness(session, coordinator.clock.now()),
    )


def _row(session: Session, pool: Pool, row: SubmissionRow) -> Iterator[TraceStage]:
    """Of a submission that was taken in."""
    yield _task(session, pool, session.get_one(TaskRow, row.task_id))
    yield _submission(session, row)
    yield from _verdicts(session, row)
    yield from _reaudit(session, row)
    for batch in _batches(session, row):
        yield _batch(session, pool, row, batch)
        yield _step(batch)
        yield from _weights(session, pool, batch)
    yield from (_chain_event(event) for event in _chain_events(session, row))


def _rest(session: Session, pool: Pool, subject: str) -> Iterator[TraceStage]:
    """Of a task for which nothing came in, or of anything that the chain has events about."""
    if (task := session.get(TaskRow, subject)) is not None:
        yield _task(session, pool, task)
    about_it = select(ChainEvent).where(ChainEvent.subject == subject)
    for event in session.scalars(about_it.order_by(ChainEvent.block, ChainEvent.log_index)):
        yield _chain_event(event)


def _task(session: Session, pool: Pool, task: TaskRow) -> TraceStage:
    return TraceStage(
        stage="task",
        id=task.task_id,
        status=task.standing,
        signer=pool.coordinator,
        time=task.leased_time,
        log_indexes=_leaves(session, task.task_id),
        values={
            "node": task.node,
            "policy_version": str(task.policy_version),
            "counter": str(task.counter),
            "price_wei": str(task.price_wei),
            "max_units": str(task.max_units),
            "deadline": str(task.deadline),
        },
    )


def _submission(session: Session, row: SubmissionRow) -> TraceStage:
    return TraceStage(
        stage="submission",
        id=row.submission_id,
        status=row.standing,
        signer=row.node,
        time=row.received_time,
        log_indexes=_leaves(session, row.submission_id),
        values={
            "provider": row.provider,
            "content_hash": row.content_hash,
            "rollouts": str(row.num_rollouts),
            "units": str(row.num_units),
            "epoch": str(row.epoch),
            "reason": row.reason or "",
        },
    )


def _verdicts(session: Session, row: SubmissionRow) -> Iterator[TraceStage]:
    votes = votes_on(session, row.submission_id)
    for verdict in verdicts_on(session, row.submission_id):
        reviews = votes.get((verdict.round, verdict.seat), Counter())
        yield TraceStage(
            stage="verdict",
            id=verdict.signed_verdict["message"]["evidence_hash"],
            status=Outcome(verdict.outcome).name.lower(),
            signer=verdict.validator,
            time=session.get_one(Event, verdict.log_index).time,
            log_indexes=(verdict.log_index,),
            values={
                "round": str(verdict.round),
                "draw": str(verdict.draw),
                "seat": str(verdict.seat),
                "reason": verdict.reason or "",
                "stamp": f"{reviews[True]} agree, {reviews[False]} dispute" if reviews else "",
            },
        )


def _reaudit(session: Session, row: SubmissionRow) -> Iterator[TraceStage]:
    """Round 1, as far as it has come."""
    reaudit = session.get(ReauditRow, row.submission_id)
    if reaudit is not None:
        epoch = session.get(Epoch, reaudit.epoch)
        leaves = session.scalars(_events_of(row.submission_id).where(Event.type.startswith("reaudit."))).all()
        yield TraceStage(
            stage="re-audit",
            id=epoch.beacon_hash if epoch is not None else None,
            status=reaudit.state,
            signer=None,
            time=leaves[-1].time if leaves else None,
            log_indexes=tuple(event.index for event in leaves),
            values={"epoch": str(reaudit.epoch)},
        )


def _batches(session: Session, row: SubmissionRow) -> list[BatchRow]:
    numbers = select(GroupRow.batch).where(GroupRow.submission_id == row.submission_id, GroupRow.batch.is_not(None))
    return list(session.scalars(select(BatchRow).where(BatchRow.number.in_(numbers)).order_by(BatchRow.number)))


def _batch(session: Session, pool: Pool, row: SubmissionRow, batch: BatchRow) -> TraceStage:
    offer = BatchOffer.model_validate(batch.offer)
    of_it = select(GroupRow).where(GroupRow.submission_id == row.submission_id, GroupRow.batch == batch.number)
    groups = session.scalars(of_it)
    uses = Counter(group.unused_reason or group.use or "undecided" for group in groups)
    leaves = _leaves(session, offer.groups_root)
    return TraceStage(
        stage="batch",
        id=offer.groups_root,
        status=batch.state,
        signer=pool.coordinator,
        time=session.get_one(Event, leaves[0]).time if leaves else None,
        log_indexes=leaves,
        values={"number": str(batch.number), "groups": ", ".join(f"{n} {use}" for use, n in sorted(uses.items()))},
    )


def _step(batch: BatchRow) -> TraceStage:
    """The optimizer step that the batch was for; the trainer answers for it with the weights that it publishes."""
    return TraceStage(
        stage="step",
        id=None,
        status="taken" if batch.state == "consumed" else "waiting",
        signer=None,
        time=None,
        log_indexes=(),
        values={"step": str(batch.step)},
    )


def _weights(session: Session, pool: Pool, batch: BatchRow) -> Iterator[TraceStage]:
    version = session.get(Version, (pool.pool_id, batch.step))
    if version is not None:
        yield TraceStage(
            stage="weights",
            id=version.manifest_hash,
            status="sealed" if version.beacon_hash else "published",
            signer=pool.trainer,
            time=version.published_time,
            log_indexes=_leaves(session, version.manifest_hash),
            values={"policy_version": str(version.policy_version), "beacon_block": str(version.beacon_block)},
        )


def _chain_events(session: Session, row: SubmissionRow) -> list[ChainEvent]:
    """Events about the submission, and those of the epoch that anchored it."""
    epoch = session.get(Epoch, row.epoch)
    transaction = epoch.transaction_hash if epoch is not None else None
    is_about_it = ChainEvent.subject == row.submission_id
    is_its_commit = (ChainEvent.transaction_hash == transaction) & (ChainEvent.name == "EpochCommitted")
    found = select(ChainEvent).where(or_(is_about_it, is_its_commit))
    return list(session.scalars(found.order_by(ChainEvent.block, ChainEvent.log_index)))


def _words(name: str, value: Any) -> str:
    """An argument as people read it; a reason by its name, where its number has one."""
    with suppress(KeyError):
        return RejectReason.from_code(value).value if name == "reason" else str(value)
    return str(value)


def _chain_event(event: ChainEvent) -> TraceStage:
    shown = {name: _words(name, event.arguments[name]) for name in SHOWN_ARGUMENTS if name in event.arguments}
    return TraceStage(
        stage="chain",
        id=event.transaction_hash,
        status=event.name,
        signer=None,
        time=event.time,
        log_indexes=(),
        values={"contract": event.contract, "block": str(event.block), **shown},
    )


def _leaves(session: Session, subject: str) -> tuple[int, ...]:
    return tuple(event.index for event in session.scalars(_events_of(subject)))


def _events_of(subject: str) -> Select[Event]:
    return select(Event).where(Event.subject == subject).order_by(Event.index)
