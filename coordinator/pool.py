"""The pool as the chain has it, and how new that knowledge is.

In: the mirrors that the indexer keeps. Out: `PoolRecord`, chain time, freshness, `PoolInfo`.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainBlock, ChainHead, CoordinatorBond, Pool, Version
from coordinator.log import open_epoch
from protocol.api import Freshness, PoolInfo
from protocol.errors import ProofpoolError, Rejected
from protocol.reasons import RejectReason


def pool_record(session: Session, pool_id: int) -> Pool:
    """The pool's mirror. Raises ProofpoolError until the indexer has read it."""
    record = session.get(Pool, pool_id)
    if record is None:
        raise ProofpoolError("the pool isn't known yet", f"pool {pool_id}", "wait until the chain is indexed")
    return record


def check_in_office(coordinator: Coordinator, pool: Pool) -> None:
    """Raises Rejected once the chain names another key as the pool's coordinator.

    What this one then signed would be nobody's word: validators refuse its tasks, and it can't anchor what it promises.
    """
    if pool.coordinator != coordinator.signer.address:
        raise Rejected(
            RejectReason.POOL_PAUSED,
            "the chain names another coordinator by now: ask that one",
            value=coordinator.signer.address,
            threshold=pool.coordinator,
        )


def missing_bond_wei(session: Session, pool: Pool) -> int:
    """What the present coordinator's bond lacks (base units), as far as the chain is indexed."""
    bond = session.get(CoordinatorBond, (pool.pool_id, pool.coordinator))
    return max(0, pool.coordinator_bond_wei - (bond.amount_wei if bond else 0))


def chain_time(session: Session) -> int:
    """Seconds of the newest indexed block: the time by which leases end; 0 before the first block."""
    return session.scalar(select(ChainBlock.time).order_by(ChainBlock.number.desc()).limit(1)) or 0


def indexed_block(session: Session) -> int | None:
    """The number of the newest block that is indexed, confirmed therefore; None before the first."""
    return session.scalar(select(ChainBlock.number).order_by(ChainBlock.number.desc()).limit(1))


def newest_version(session: Session, pool_id: int) -> int | None:
    """The newest policy version whose beacon is sealed; None before version 0."""
    return session.scalar(
        select(func.max(Version.policy_version)).where(Version.pool_id == pool_id, Version.beacon_hash.is_not(None))
    )


def freshness(session: Session, now: float) -> Freshness:
    """How far behind the chain this database may be."""
    indexed = session.scalar(select(ChainBlock).order_by(ChainBlock.number.desc()).limit(1))
    head = session.get(ChainHead, 1)
    indexed_block, indexed_time = (indexed.number, indexed.time) if indexed else (0, 0)
    unseen = 0.0 if head is None else max(0, head.time - indexed_time) + max(0.0, now - head.seen_time)
    return Freshness(
        head_block=max(head.number if head else 0, indexed_block),
        indexed_block=indexed_block,
        chain_time=indexed_time,
        lag_seconds=round(unseen, 3),
    )


def pool_info(coordinator: Coordinator, session: Session) -> PoolInfo:
    """All that a role needs to join."""
    record = pool_record(session, coordinator.config.pool_id)
    is_replaced = record.coordinator != coordinator.signer.address
    return PoolInfo(
        pool_id=record.pool_id,
        chain_id=coordinator.domain.chain_id,
        contracts=coordinator.deployment.contracts,
        deployment_salt=coordinator.domain.salt,
        coordinator=record.coordinator,
        trainer=record.trainer,
        rules_hash=record.rules_hash,
        model_hash=record.model_hash,
        price_wei=record.price_wei,
        verify_price_wei=record.verify_price_wei,
        min_allotment_wei=record.min_allotment_wei,
        max_async=record.max_async,
        accept_quorum=record.accept_quorum,
        slash_quorum=record.slash_quorum,
        confirmations=record.confirmations,
        policy_version=newest_version(session, record.pool_id),
        epoch=open_epoch(session),
        shardcast_urls=coordinator.config.shardcast_urls,
        paused=record.paused or record.closing or missing_bond_wei(session, record) > 0 or is_replaced,
        freshness=freshness(session, coordinator.clock.now()),
    )
