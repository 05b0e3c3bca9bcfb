"""The append-only log: one event a state change, one leaf an event, and the tree's finished nodes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from coordinator.db.base import Base, Count, HashText


class Event(Base):
    """A leaf. `document` is the canonical JSON itself, byte for byte what was hashed."""

    __tablename__ = "event"
    index: Mapped[Count] = mapped_column(primary_key=True)
    type: Mapped[str] = mapped_column(index=True)
    subject: Mapped[HashText] = mapped_column(index=True)
    time: Mapped[Count]
    document: Mapped[bytes] = mapped_column(LargeBinary)
    leaf_hash: Mapped[HashText]


class LogNode(Base):
    """Root of a complete subtree of 2^level leaves, number `position` on its level (RFC 9162, section 2.1)."""

    __tablename__ = "log_node"
    level: Mapped[Count] = mapped_column(primary_key=True)
    position: Mapped[Count] = mapped_column(primary_key=True)
    node_hash: Mapped[HashText]


class Outbox(Base):
    """A chain call that must happen exactly once: written with the change that causes it, sent afterwards."""

    __tablename__ = "outbox"
    id: Mapped[Count] = mapped_column(primary_key=True, autoincrement=True)
    purpose: Mapped[str] = mapped_column(unique=True)
    """Such as `epoch:7`: the same purpose is never queued twice."""
    contract: Mapped[str]
    data: Mapped[bytes] = mapped_column(LargeBinary)
    state: Mapped[str] = mapped_column(index=True)
    """queued, sent or mined."""
    nonce: Mapped[Count | None]
    transaction_hash: Mapped[HashText | None]
    raw: Mapped[bytes | None] = mapped_column(LargeBinary)
    """The signed transaction as it was sent last."""
    replaced: Mapped[list[Any]] = mapped_column(JSON, default=list)
    """Hashes of its earlier versions, at lower fees, any of which may be mined all the same."""
    sent_time: Mapped[float | None]
    """Unix seconds of this machine's clock."""
    refusal: Mapped[str | None]
    """Why the contracts wouldn't take it when it was last tried."""
    block: Mapped[Count | None]
