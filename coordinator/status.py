"""How the coordinator is: how fresh, how much waits, what is owed. `/v1/status`, `/healthz`, `/readyz`, `/metrics`.

In: the database. Out: `Status`, readiness, and the metrics `proofpool_coordinator_*`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainEvent, Epoch, Pool
from coordinator.db.log import Outbox
from coordinator.db.work import Escrow, GroupRow, ReauditRow, TaskRow
from coordinator.log import log_size, open_epoch
from coordinator.log_nodes import LogNodes
from coordinator.pool import freshness, newest_version
from coordinator.stamps import num_disputed_by_validator
from protocol.api import Status, Use
from protocol.errors import ProofpoolError
from protocol.merkle.history import root_of
from protocol.metrics import MetricSpec, Values, families

MAX_LAG_SECONDS = 60.0
"""A coordinator further behind the chain isn't ready."""


def status(coordinator: Coordinator, session: Session) -> Status:
    size = log_size(session)
    standings = select(TaskRow.standing, func.count()).group_by(TaskRow.standing)
    reaudits = select(ReauditRow.state, func.count()).group_by(ReauditRow.state)
    outbox = select(Outbox.state, func.count()).group_by(Outbox.state)
    escrow = session.get(Escrow, coordinator.config.pool_id)
    return Status(
        freshness=freshness(session, coordinator.clock.now()),
        epoch=open_epoch(session),
        committed_epochs=_count(session, Epoch.epoch, Epoch.block.is_not(None)),
        log_size=size,
        log_root=root_of(LogNodes(session), size),
        policy_version=newest_version(session, coordinator.config.pool_id),
        num_by_standing=dict(session.execute(standings).all()),
        num_by_use=num_by_use(session),
        num_by_reaudit=dict(session.execute(reaudits).all()),
        disputed_stamps=num_disputed_by_validator(session),
        num_pending_groups=_count(session, GroupRow.group, GroupRow.use == Use.PENDING),
        earned_wei=escrow.earned_wei if escrow else 0,
        claimed_wei=claimed_wei(session),
        outbox=dict(session.execute(outbox).all()),
    )


def num_by_use(session: Session) -> dict[str, int]:
    """Groups that are accepted, by their use; the unused ones by their reason."""
    use = func.coalesce(GroupRow.unused_reason, GroupRow.use)
    return dict(session.execute(select(use, func.count()).where(GroupRow.use.is_not(None)).group_by(use)).all())


def claimed_wei(session: Session) -> int:
    """What the contracts have paid out, as far as it is indexed."""
    return sum(event["amount"] for event in session.scalars(select(ChainEvent.arguments).where(_IS_CLAIM)))


_IS_CLAIM = ChainEvent.name == "Claimed"


def check_ready(coordinator: Coordinator, session: Session) -> None:
    """Raises ProofpoolError while requests can't be served: the pool isn't indexed, or the chain is far ahead."""
    lag = freshness(session, coordinator.clock.now()).lag_seconds
    if session.get(Pool, coordinator.config.pool_id) is None:
        raise ProofpoolError("the pool isn't indexed yet", f"pool {coordinator.config.pool_id}", "wait for the indexer")
    if lag > MAX_LAG_SECONDS:
        raise ProofpoolError(
            "the chain is far ahead", f"{lag:.0f} s of at most {MAX_LAG_SECONDS:.0f}", "check the node"
        )


ROLE = "coordinator"
METRICS = (
    MetricSpec("indexed_block", "gauge", "Newest indexed block."),
    MetricSpec("head_block", "gauge", "Newest block that the chain's node has named."),
    MetricSpec("lag_seconds", "gauge", "How far behind the chain the database may be."),
    MetricSpec("committed_epochs", "gauge", "Epochs on chain."),
    MetricSpec("log_size", "gauge", "Leaves of the audit log."),
    MetricSpec("pending_groups", "gauge", "Accepted groups that wait for a batch."),
    MetricSpec("earned_wei", "gauge", "Gross earnings of all accounts."),
    MetricSpec("disputed_stamps", "gauge", "Work stamps that more seats dispute than confirm."),
    MetricSpec("claimed_wei", "gauge", "Paid out by the contracts."),
    MetricSpec("tasks", "gauge", "Tasks by standing.", ("standing",)),
    MetricSpec("groups", "gauge", "Accepted groups by use, the unused ones by their reason.", ("use",)),
    MetricSpec("reaudits", "gauge", "Settled submissions by their re-audit.", ("state",)),
    MetricSpec("outbox_calls", "gauge", "Chain calls by state.", ("state",)),
)


class StatusMetrics:
    """What Prometheus scrapes, read from the database when it asks."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[Metric]:
        with self._coordinator.reading() as session:
            now = status(self._coordinator, session)
        plain = {
            "indexed_block": now.freshness.indexed_block,
            "head_block": now.freshness.head_block,
            "lag_seconds": now.freshness.lag_seconds,
            "committed_epochs": now.committed_epochs,
            "log_size": now.log_size,
            "pending_groups": now.num_pending_groups,
            "earned_wei": now.earned_wei,
            "disputed_stamps": sum(now.disputed_stamps.values()),
            "claimed_wei": now.claimed_wei,
        }
        labelled = {
            "tasks": now.num_by_standing,
            "groups": now.num_by_use,
            "reaudits": now.num_by_reaudit,
            "outbox_calls": now.outbox,
        }
        values: dict[str, Values] = {name: {(): float(value)} for name, value in plain.items()}
        values |= {name: {(label,): count for label, count in found.items()} for name, found in labelled.items()}
        yield from families(ROLE, METRICS, values)


def _count(session: Session, column: object, condition: object) -> int:
    return session.scalar(select(func.count(column)).where(condition)) or 0  # type: ignore[arg-type]
