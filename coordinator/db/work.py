"""Tasks, submissions, verdicts and batches: the life of work, one table a noun."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from coordinator.db.base import AddressText, Base, Count, HashText, WeiAmount


class RulesDocument(Base):
    """A rules document that some task was leased under."""

    __tablename__ = "rules_document"
    rules_hash: Mapped[HashText] = mapped_column(primary_key=True)
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class TaskRow(Base):
    """A lease. `standing` follows the work to its end (`protocol/api.py:Standing`)."""

    __tablename__ = "task"
    __table_args__ = (
        UniqueConstraint("pool_id", "policy_version", "node", "counter"),
        Index("ix_task_node_history", "node", "log_index"),
    )
    task_id: Mapped[HashText] = mapped_column(primary_key=True)
    pool_id: Mapped[Count]
    policy_version: Mapped[Count]
    node: Mapped[AddressText]
    provider: Mapped[AddressText]
    counter: Mapped[Count]
    rules_hash: Mapped[HashText]
    signed_task: Mapped[dict[str, Any]] = mapped_column(JSON)
    deadline: Mapped[Count]
    """As it is now: the task's own, or its newest renewal's."""
    max_units: Mapped[Count]
    price_wei: Mapped[WeiAmount]
    verify_price_wei: Mapped[WeiAmount]
    """For one verified token, as it was when the task was leased."""
    reserved_wei: Mapped[WeiAmount]
    """Of the pool's funds, for provider and validators; given back when the task ends."""
    standing: Mapped[str] = mapped_column(index=True)
    leased_time: Mapped[Count]
    log_index: Mapped[Count]
    """Leaf of its `task.leased` event: the order in which leases were given."""
    signed_renewal: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """The newest."""


class SubmissionRow(Base):
    """A received file and what was decided about it."""

    __tablename__ = "submission"
    __table_args__ = (Index("ix_submission_rows", "node", "rows_hash"),)
    submission_id: Mapped[HashText] = mapped_column(primary_key=True)
    task_id: Mapped[HashText] = mapped_column(ForeignKey("task.task_id"), unique=True)
    provider: Mapped[AddressText] = mapped_column(index=True)
    node: Mapped[AddressText]
    policy_version: Mapped[Count] = mapped_column(index=True)
    content_hash: Mapped[HashText]
    rows_hash: Mapped[HashText]
    """SHA-256 over the rows alone: equal where a node hands in the same work for another task."""
    signed_submission: Mapped[dict[str, Any]] = mapped_column(JSON)
    signed_receipt: Mapped[dict[str, Any]] = mapped_column(JSON)
    file_sha256: Mapped[HashText]
    num_bytes: Mapped[Count]
    num_rollouts: Mapped[Count]
    num_units: Mapped[Count]
    standing: Mapped[str] = mapped_column(index=True)
    reason: Mapped[str | None]
    received_time: Mapped[Count]
    log_index: Mapped[Count] = mapped_column(index=True)
    """Leaf of its `submission.received` event."""
    epoch: Mapped[Count]
    """Its intake epoch: the one that was open when it came in, which anchors its leaf."""


class ForcedRefusal(Base):
    """Why a submission that a node forced in on chain was last refused at the door."""

    __tablename__ = "forced_refusal"
    submission_id: Mapped[HashText] = mapped_column(primary_key=True)
    reason: Mapped[str]
    detail: Mapped[str]


class GroupRow(Base):
    """One prompt's rollouts in a submission, and what becomes of them (`protocol/api.py:Use`)."""

    __tablename__ = "group"
    __table_args__ = (Index("ix_group_pending", "use", "policy_version"),)
    submission_id: Mapped[HashText] = mapped_column(ForeignKey("submission.submission_id"), primary_key=True)
    group: Mapped[Count] = mapped_column(primary_key=True)
    policy_version: Mapped[Count]
    has_variance: Mapped[bool]
    """Its task rewards aren't all equal: only such groups count to a batch."""
    mean_reward: Mapped[float]
    num_tokens: Mapped[Count]
    use: Mapped[str | None]
    """None until the submission is accepted."""
    unused_reason: Mapped[str | None]
    batch: Mapped[Count | None] = mapped_column(index=True)


class Draw(Base):
    """A seat's turn at a submission: `draw` counts raw draws, so skipped ones leave gaps."""

    __tablename__ = "draw"
    submission_id: Mapped[HashText] = mapped_column(ForeignKey("submission.submission_id"), primary_key=True)
    round: Mapped[Count] = mapped_column(primary_key=True)
    draw: Mapped[Count] = mapped_column(primary_key=True)
    seat: Mapped[Count] = mapped_column(index=True)
    validator: Mapped[AddressText] = mapped_column(index=True)
    opened_epoch: Mapped[Count]
    """Epoch count when it was opened; without a reveal a few epochs later the next seat is drawn."""
    state: Mapped[str]
    """open, revealed or missed."""


class CommitmentRow(Base):
    """A seat's Merkle root over verdicts, to be anchored before they are revealed."""

    __tablename__ = "commitment"
    epoch: Mapped[Count] = mapped_column(primary_key=True)
    seat: Mapped[Count] = mapped_column(primary_key=True)
    part: Mapped[Count] = mapped_column(primary_key=True)
    root: Mapped[HashText]
    signed_commitment: Mapped[dict[str, Any]] = mapped_column(JSON)
    log_index: Mapped[Count]


class VerdictRow(Base):
    """A revealed verdict with its evidence."""

    __tablename__ = "verdict"
    submission_id: Mapped[HashText] = mapped_column(ForeignKey("submission.submission_id"), primary_key=True)
    round: Mapped[Count] = mapped_column(primary_key=True)
    draw: Mapped[Count] = mapped_column(primary_key=True)
    seat: Mapped[Count]
    validator: Mapped[AddressText] = mapped_column(index=True)
    outcome: Mapped[Count]
    reason: Mapped[str | None]
    signed_verdict: Mapped[dict[str, Any]] = mapped_column(JSON)
    evidence: Mapped[dict[str, Any]] = mapped_column(JSON)
    opening: Mapped[dict[str, Any]] = mapped_column(JSON)
    """What opens the commitment: commitment_epoch, part, salt, path."""
    in_time: Mapped[bool]
    """Revealed before its turn had passed: only such verdicts are paid."""
    log_index: Mapped[Count]


class ReauditRow(Base):
    """Round 1 of a settled submission: whether it is due, and what came of it (`protocol/api.py:ReauditState`)."""

    __tablename__ = "reaudit"
    submission_id: Mapped[HashText] = mapped_column(ForeignKey("submission.submission_id"), primary_key=True)
    epoch: Mapped[Count] = mapped_column(index=True)
    """The one that anchors the settling; its beacon picks the submission and draws the seats."""
    accepted: Mapped[bool]
    """What round 0 decided."""
    state: Mapped[str] = mapped_column(index=True)
    asked_epoch: Mapped[Count] = mapped_column(index=True)
    """Whose beacon says whether somebody (or one more) looks: the settling's, then that of each end of the re-audit."""
    is_asking: Mapped[bool]
    """That beacon hasn't been asked yet."""
    num_wanted: Mapped[Count]
    """How many verdicts of round 1 there have to be, since a beacon was last asked."""
    paid: Mapped[list[Any]] = mapped_column(JSON)
    """Validators that round 1 has paid."""
    reserved_wei: Mapped[WeiAmount]
    """Of the pool's funds, for validators of round 1; given back when it is over."""


class StampReviewRow(Base):
    """What a seat found of an earlier verdict's work stamp; `round`, `seat`, `validator` are the reviewed verdict's."""

    __tablename__ = "stamp_review"
    submission_id: Mapped[HashText] = mapped_column(ForeignKey("submission.submission_id"), primary_key=True)
    round: Mapped[Count] = mapped_column(primary_key=True)
    seat: Mapped[Count] = mapped_column(primary_key=True)
    reviewer: Mapped[AddressText] = mapped_column(primary_key=True)
    validator: Mapped[AddressText] = mapped_column(index=True)
    agrees: Mapped[bool]
    largest_difference: Mapped[float | None]


class BatchRow(Base):
    """Groups leased to the trainer for one step, until acknowledged or refused; a refused one has a successor."""

    __tablename__ = "batch"
    number: Mapped[Count] = mapped_column(primary_key=True)
    step: Mapped[Count] = mapped_column(index=True)
    offer: Mapped[dict[str, Any]] = mapped_column(JSON)
    file_sha256: Mapped[HashText]
    state: Mapped[str]
    """leased, consumed or refused; a batch belongs to its step and is handed out again until acknowledged."""
    deadline: Mapped[Count]


class Account(Base):
    """Gross cumulative earnings of one address."""

    __tablename__ = "account"
    address: Mapped[AddressText] = mapped_column(primary_key=True)
    cumulative_wei: Mapped[WeiAmount]


class Escrow(Base):
    """What of the pool's funds is spoken for: reserved by open work, and earned."""

    __tablename__ = "escrow"
    pool_id: Mapped[Count] = mapped_column(primary_key=True)
    reserved_wei: Mapped[WeiAmount]
    earned_wei: Mapped[WeiAmount]
    """Sum of all accounts."""


class SeenNonce(Base):
    """A nonce of a signed request that must not act twice, kept until the request expires."""

    __tablename__ = "seen_nonce"
    address: Mapped[AddressText] = mapped_column(primary_key=True)
    nonce: Mapped[str] = mapped_column(primary_key=True)
    expiry: Mapped[Count] = mapped_column(index=True)
