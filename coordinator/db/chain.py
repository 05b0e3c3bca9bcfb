"""Mirrors of chain state, rebuilt from events; each row remembers the block that made it.

A reorg deletes `ChainEvent` rows past the fork and the mirrors are replayed from what is left.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from coordinator.db.base import AddressText, Base, Count, HashText, WeiAmount


class ChainBlock(Base):
    """A block that the indexer has read, so that another parent hash shows a reorg."""

    __tablename__ = "chain_block"
    number: Mapped[Count] = mapped_column(primary_key=True)
    block_hash: Mapped[HashText]
    time: Mapped[Count]


class ChainEvent(Base):
    """A decoded contract event, in chain order."""

    __tablename__ = "chain_event"
    __table_args__ = (UniqueConstraint("block", "log_index"),)
    id: Mapped[Count] = mapped_column(primary_key=True, autoincrement=True)
    block: Mapped[Count] = mapped_column(index=True)
    log_index: Mapped[Count]
    time: Mapped[Count]
    """Chain seconds of its block."""
    transaction_hash: Mapped[HashText]
    contract: Mapped[str]
    name: Mapped[str] = mapped_column(index=True)
    subject: Mapped[HashText] = mapped_column(index=True)
    """The id that it is about (a submission, a manifest), or zero."""
    arguments: Mapped[dict[str, Any]] = mapped_column(JSON)


class ChainHead(Base):
    """The newest block that the chain's node has named, indexed or not: what freshness is measured against."""

    __tablename__ = "chain_head"
    id: Mapped[Count] = mapped_column(primary_key=True)
    """Always 1."""
    number: Mapped[Count]
    time: Mapped[Count]
    seen_time: Mapped[float]
    """Unix seconds of this machine's clock when it was read."""


class Pool(Base):
    """The pool's record on chain, with the terms that are in force now."""

    __tablename__ = "pool"
    pool_id: Mapped[Count] = mapped_column(primary_key=True)
    coordinator: Mapped[AddressText]
    trainer: Mapped[AddressText]
    rules_hash: Mapped[HashText]
    model_hash: Mapped[HashText]
    price_wei: Mapped[WeiAmount]
    """For one unit."""
    verify_price_wei: Mapped[WeiAmount]
    """For one verified token."""
    min_allotment_wei: Mapped[WeiAmount]
    funded_wei: Mapped[WeiAmount]
    """All that was ever paid in, less what was refunded to the creator; claims don't lower it."""
    max_async: Mapped[Count]
    accept_quorum: Mapped[Count]
    slash_quorum: Mapped[Count]
    draw_limit: Mapped[Count]
    """The most seats that one round may draw."""
    reaudit_bps: Mapped[Count]
    """Share of settled submissions that are judged again, in hundredths of a percent."""
    confirmations: Mapped[Count]
    lease_max_seconds: Mapped[Count]
    coordinator_bond_wei: Mapped[WeiAmount] = mapped_column(default=0)
    """What the coordinator must have bonded, or nothing is leased."""
    paused: Mapped[bool] = mapped_column(default=False)
    closing: Mapped[bool] = mapped_column(default=False)


class CoordinatorBond(Base):
    """What a key that is or was the pool's coordinator answers with."""

    __tablename__ = "coordinator_bond"
    pool_id: Mapped[Count] = mapped_column(primary_key=True)
    coordinator: Mapped[AddressText] = mapped_column(primary_key=True)
    amount_wei: Mapped[WeiAmount]


class Node(Base):
    """A hot key that a provider has authorised."""

    __tablename__ = "node"
    address: Mapped[AddressText] = mapped_column(primary_key=True)
    provider: Mapped[AddressText] = mapped_column(index=True)
    removed: Mapped[bool] = mapped_column(default=False)


class Allotment(Base):
    """Stake bound to one node in one pool: what eligibility looks at and what a slash can reach."""

    __tablename__ = "allotment"
    node: Mapped[AddressText] = mapped_column(primary_key=True)
    pool_id: Mapped[Count] = mapped_column(primary_key=True)
    amount_wei: Mapped[WeiAmount]
    held_wei: Mapped[WeiAmount] = mapped_column(default=0)


class Seat(Base):
    """One unit of validator bond; index and activity decide draws."""

    __tablename__ = "seat"
    pool_id: Mapped[Count] = mapped_column(primary_key=True)
    seat: Mapped[Count] = mapped_column(primary_key=True)
    validator: Mapped[AddressText] = mapped_column(index=True)
    active_from_epoch: Mapped[Count]
    active_until_epoch: Mapped[Count | None]


class Version(Base):
    """A policy version as published on chain; `beacon_hash` is there once sealed."""

    __tablename__ = "version"
    pool_id: Mapped[Count] = mapped_column(primary_key=True)
    policy_version: Mapped[Count] = mapped_column(primary_key=True)
    manifest_hash: Mapped[HashText]
    beacon_block: Mapped[Count]
    beacon_hash: Mapped[HashText | None]
    published_time: Mapped[Count]
    release_signature: Mapped[str | None]
    """The trainer's `WeightsRelease` signature, once announced over HTTP."""


class Epoch(Base):
    """A head of the log. What the chain adds (`transaction_hash` to `beacon_hash`) is there once it has the head."""

    __tablename__ = "epoch"
    epoch: Mapped[Count] = mapped_column(primary_key=True)
    size: Mapped[Count]
    root: Mapped[HashText]
    transaction_hash: Mapped[HashText | None]
    block: Mapped[Count | None]
    beacon_block: Mapped[Count | None]
    """The block whose hash the beacon will be, or is."""
    beacon_hash: Mapped[HashText | None]
    checkpoint: Mapped[str | None]
    """The head as a signed note, once the chain has it, where the pool names a key for that."""


class Earnings(Base):
    """A gross cumulative earnings root: proposed, attested, committed."""

    __tablename__ = "earnings"
    epoch: Mapped[Count] = mapped_column(primary_key=True)
    root: Mapped[HashText]
    total_wei: Mapped[WeiAmount]
    accounts: Mapped[list[Any]] = mapped_column(JSON)
    """[[address, decimal text], …] in address order."""
    signatures: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """Seat index as text to signature."""
    transaction_hash: Mapped[HashText | None]
    claimable_time: Mapped[Count | None]
