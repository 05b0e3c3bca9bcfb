"""The whole row of one submission, from its lease to what the chain says of it.

In: a submission's id. Out: `Trace`, a stage an arrow of the flow table, as far as it has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sqlalchemy import Select, or_, select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainEvent, Epoch, Pool, Version
from coordinator.db.log import Event
from coordinator.db.work import BatchRow, GroupRow, ReauditRow, SubmissionRow, TaskRow
from coordinator.pool import freshness, pool_record
from coordinator.stamps import votes_on
from coordinator.submissions import submission_row, verdicts_on
from protocol.api import BatchOffer
from protocol.reasons import Outcome
from protocol.trace import Trace, TraceStage

SHOWN_ARGUMENTS = ("submission_id", "epoch", "version", "root", "size", "manifest_hash", "reason", "amount", "slashed")


def trace(coordinator: Coordinator, session: Session, submission_id: str) -> Trace:
    """Raises NotFound where no such submission was received."""
    row = submission_row(session, submission_id)
    pool = pool_record(session, coordinator.config.pool_id)
    stages = [_task(session, pool, row), _submission(session, row), *_verdicts(session, row), *_reaudit(session, row)]
    for batch in _batches(session, row):
        stages += [_batch(session, pool, row, batch), _step(batch), *_weights(session, pool, batch)]
    stages += [_chain_event(session, event) for event in _chain_events(session, row)]
    return Trace(
        submission_id=submission_id,
        stages=tuple(stages),
        freshness=freshness(session, coordinator.clock.now()),
    )


def _task(session: Session, pool: Pool, row: SubmissionRow) -> TraceStage:
    task = session.get_one(TaskRow, row.task_id)
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


def _chain_event(session: Session, event: ChainEvent) -> TraceStage:
    shown = {name: str(event.arguments[name]) for name in SHOWN_ARGUMENTS if name in event.arguments}
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
