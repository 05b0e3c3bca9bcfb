"""How the coordinator is: how fresh, how much waits, what is owed. `/v1/status`, `/healthz`, `/readyz`, `/metrics`.

In: the database. Out: `Status`, readiness, and the metrics `proofpool_coordinator_*`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
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
        num_by_reaudit=dict(session.execute(reaudits).all()),
        disputed_stamps=num_disputed_by_validator(session),
        num_pending_groups=_count(session, GroupRow.group, GroupRow.use == Use.PENDING),
        earned_wei=escrow.earned_wei if escrow else 0,
        claimed_wei=claimed_wei(session),
        outbox=dict(session.execute(outbox).all()),
    )


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


class StatusMetrics:
    """What Prometheus scrapes, read from the database when it asks."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[Metric]:
        with self._coordinator.reading() as session:
            now = status(self._coordinator, session)
        plain = {
            "indexed_block": ("Newest indexed block.", now.freshness.indexed_block),
            "head_block": ("Newest block that the chain's node has named.", now.freshness.head_block),
            "lag_seconds": ("How far behind the chain the database may be.", now.freshness.lag_seconds),
            "committed_epochs": ("Epochs on chain.", now.committed_epochs),
            "log_size": ("Leaves of the audit log.", now.log_size),
            "pending_groups": ("Accepted groups that wait for a batch.", now.num_pending_groups),
            "earned_wei": ("Gross earnings of all accounts.", now.earned_wei),
            "disputed_stamps": ("Work stamps that more seats dispute than confirm.", sum(now.disputed_stamps.values())),
            "claimed_wei": ("Paid out by the contracts.", now.claimed_wei),
        }
        for name, (text, value) in plain.items():
            yield GaugeMetricFamily(f"proofpool_coordinator_{name}", text, value=float(value))
        yield _labelled("tasks", "Tasks by standing.", "standing", now.num_by_standing)
        yield _labelled("reaudits", "Settled submissions by their re-audit.", "state", now.num_by_reaudit)
        yield _labelled("outbox_calls", "Chain calls by state.", "state", now.outbox)


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(f"proofpool_coordinator_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], float(count))
    return family


def _count(session: Session, column: object, condition: object) -> int:
    return session.scalar(select(func.count(column)).where(condition)) or 0  # type: ignore[arg-type]
