"""The first schema: one function a table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "account",
    "allotment",
    "batch",
    "chain_block",
    "chain_event",
    "chain_head",
    "commitment",
    "earnings",
    "epoch",
    "escrow",
    "event",
    "log_node",
    "node",
    "outbox",
    "pool",
    "rules_document",
    "seat",
    "seen_nonce",
    "task",
    "version",
    "submission",
    "draw",
    "group",
    "verdict",
)
"""In the order in which they refer to each other."""


def upgrade() -> None:
    _create_account()
    _create_allotment()
    _create_batch()
    _create_chain_block()
    _create_chain_event()
    _create_chain_head()
    _create_commitment()
    _create_earnings()
    _create_epoch()
    _create_escrow()
    _create_event()
    _create_log_node()
    _create_node()
    _create_outbox()
    _create_pool()
    _create_rules_document()
    _create_seat()
    _create_seen_nonce()
    _create_task()
    _create_version()
    _create_submission()
    _create_draw()
    _create_group()
    _create_verdict()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_account() -> None:
    op.create_table(
        "account",
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("cumulative_wei", sa.String(length=78), nullable=False),
        sa.PrimaryKeyConstraint("address"),
    )


def _create_allotment() -> None:
    op.create_table(
        "allotment",
        sa.Column("node", sa.String(length=42), nullable=False),
        sa.Column("pool_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("amount_wei", sa.String(length=78), nullable=False),
        sa.Column("held_wei", sa.String(length=78), nullable=False),
        sa.PrimaryKeyConstraint("node", "pool_id"),
    )


def _create_batch() -> None:
    op.create_table(
        "batch",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("offer", sa.JSON(), nullable=False),
        sa.Column("file_sha256", sa.String(length=66), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("deadline", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("step"),
    )


def _create_chain_block() -> None:
    op.create_table(
        "chain_block",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("block_hash", sa.String(length=66), nullable=False),
        sa.Column("time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )


def _create_chain_event() -> None:
    op.create_table(
        "chain_event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("block", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("transaction_hash", sa.String(length=66), nullable=False),
        sa.Column("contract", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("subject", sa.String(length=66), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("block", "log_index"),
    )
    with op.batch_alter_table("chain_event", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_chain_event_block"), ["block"], unique=False)
        batch_op.create_index(batch_op.f("ix_chain_event_name"), ["name"], unique=False)
        batch_op.create_index(batch_op.f("ix_chain_event_subject"), ["subject"], unique=False)


def _create_chain_head() -> None:
    op.create_table(
        "chain_head",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seen_time", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_commitment() -> None:
    op.create_table(
        "commitment",
        sa.Column("epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seat", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("part", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("root", sa.String(length=66), nullable=False),
        sa.Column("signed_commitment", sa.JSON(), nullable=False),
        sa.Column("log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("epoch", "seat", "part"),
    )


def _create_earnings() -> None:
    op.create_table(
        "earnings",
        sa.Column("epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("root", sa.String(length=66), nullable=False),
        sa.Column("total_wei", sa.String(length=78), nullable=False),
        sa.Column("accounts", sa.JSON(), nullable=False),
        sa.Column("signatures", sa.JSON(), nullable=False),
        sa.Column("transaction_hash", sa.String(length=66), nullable=True),
        sa.Column("claimable_time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.PrimaryKeyConstraint("epoch"),
    )


def _create_epoch() -> None:
    op.create_table(
        "epoch",
        sa.Column("epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("size", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("root", sa.String(length=66), nullable=False),
        sa.Column("transaction_hash", sa.String(length=66), nullable=True),
        sa.Column("block", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("beacon_block", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("beacon_hash", sa.String(length=66), nullable=True),
        sa.PrimaryKeyConstraint("epoch"),
    )


def _create_escrow() -> None:
    op.create_table(
        "escrow",
        sa.Column("pool_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reserved_wei", sa.String(length=78), nullable=False),
        sa.Column("earned_wei", sa.String(length=78), nullable=False),
        sa.PrimaryKeyConstraint("pool_id"),
    )


def _create_event() -> None:
    op.create_table(
        "event",
        sa.Column("index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("subject", sa.String(length=66), nullable=False),
        sa.Column("time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("leaf_hash", sa.String(length=66), nullable=False),
        sa.PrimaryKeyConstraint("index"),
    )
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_event_subject"), ["subject"], unique=False)
        batch_op.create_index(batch_op.f("ix_event_type"), ["type"], unique=False)


def _create_log_node() -> None:
    op.create_table(
        "log_node",
        sa.Column("level", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node_hash", sa.String(length=66), nullable=False),
        sa.PrimaryKeyConstraint("level", "position"),
    )


def _create_node() -> None:
    op.create_table(
        "node",
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("address"),
    )
    with op.batch_alter_table("node", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_node_provider"), ["provider"], unique=False)


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("contract", sa.String(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("nonce", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("transaction_hash", sa.String(length=66), nullable=True),
        sa.Column("raw", sa.LargeBinary(), nullable=True),
        sa.Column("sent_time", sa.Double(), nullable=True),
        sa.Column("refusal", sa.String(), nullable=True),
        sa.Column("block", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("purpose"),
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_outbox_state"), ["state"], unique=False)


def _create_pool() -> None:
    op.create_table(
        "pool",
        sa.Column("pool_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("coordinator", sa.String(length=42), nullable=False),
        sa.Column("trainer", sa.String(length=42), nullable=False),
        sa.Column("rules_hash", sa.String(length=66), nullable=False),
        sa.Column("model_hash", sa.String(length=66), nullable=False),
        sa.Column("price_wei", sa.String(length=78), nullable=False),
        sa.Column("verify_price_wei", sa.String(length=78), nullable=False),
        sa.Column("min_allotment_wei", sa.String(length=78), nullable=False),
        sa.Column("funded_wei", sa.String(length=78), nullable=False),
        sa.Column("max_async", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("accept_quorum", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("slash_quorum", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("draw_limit", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("confirmations", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("lease_max_seconds", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("closing", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("pool_id"),
    )


def _create_rules_document() -> None:
    op.create_table(
        "rules_document",
        sa.Column("rules_hash", sa.String(length=66), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("rules_hash"),
    )


def _create_seat() -> None:
    op.create_table(
        "seat",
        sa.Column("pool_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seat", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("validator", sa.String(length=42), nullable=False),
        sa.Column("active_from_epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("active_until_epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.PrimaryKeyConstraint("pool_id", "seat"),
    )
    with op.batch_alter_table("seat", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_seat_validator"), ["validator"], unique=False)


def _create_seen_nonce() -> None:
    op.create_table(
        "seen_nonce",
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("nonce", sa.String(), nullable=False),
        sa.Column("expiry", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("address", "nonce"),
    )
    with op.batch_alter_table("seen_nonce", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_seen_nonce_expiry"), ["expiry"], unique=False)


def _create_task() -> None:
    op.create_table(
        "task",
        sa.Column("task_id", sa.String(length=66), nullable=False),
        sa.Column("pool_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("policy_version", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node", sa.String(length=42), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("counter", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("rules_hash", sa.String(length=66), nullable=False),
        sa.Column("signed_task", sa.JSON(), nullable=False),
        sa.Column("deadline", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("max_units", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("price_wei", sa.String(length=78), nullable=False),
        sa.Column("verify_price_wei", sa.String(length=78), nullable=False),
        sa.Column("reserved_wei", sa.String(length=78), nullable=False),
        sa.Column("standing", sa.String(), nullable=False),
        sa.Column("leased_time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("task_id"),
        sa.UniqueConstraint("pool_id", "policy_version", "node", "counter"),
    )
    with op.batch_alter_table("task", schema=None) as batch_op:
        batch_op.create_index("ix_task_node_history", ["node", "log_index"], unique=False)
        batch_op.create_index(batch_op.f("ix_task_standing"), ["standing"], unique=False)


def _create_version() -> None:
    op.create_table(
        "version",
        sa.Column("pool_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("policy_version", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("manifest_hash", sa.String(length=66), nullable=False),
        sa.Column("beacon_block", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("beacon_hash", sa.String(length=66), nullable=True),
        sa.Column("published_time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("release_signature", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("pool_id", "policy_version"),
    )


def _create_submission() -> None:
    op.create_table(
        "submission",
        sa.Column("submission_id", sa.String(length=66), nullable=False),
        sa.Column("task_id", sa.String(length=66), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("node", sa.String(length=42), nullable=False),
        sa.Column("policy_version", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("content_hash", sa.String(length=66), nullable=False),
        sa.Column("rows_hash", sa.String(length=66), nullable=False),
        sa.Column("signed_submission", sa.JSON(), nullable=False),
        sa.Column("signed_receipt", sa.JSON(), nullable=False),
        sa.Column("file_sha256", sa.String(length=66), nullable=False),
        sa.Column("num_bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("num_rollouts", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("num_units", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("standing", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("received_time", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.task_id"],
        ),
        sa.PrimaryKeyConstraint("submission_id"),
        sa.UniqueConstraint("task_id"),
    )
    with op.batch_alter_table("submission", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_submission_log_index"), ["log_index"], unique=False)
        batch_op.create_index(batch_op.f("ix_submission_policy_version"), ["policy_version"], unique=False)
        batch_op.create_index(batch_op.f("ix_submission_provider"), ["provider"], unique=False)
        batch_op.create_index("ix_submission_rows", ["node", "rows_hash"], unique=False)
        batch_op.create_index(batch_op.f("ix_submission_standing"), ["standing"], unique=False)


def _create_draw() -> None:
    op.create_table(
        "draw",
        sa.Column("submission_id", sa.String(length=66), nullable=False),
        sa.Column("round", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("draw", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seat", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("validator", sa.String(length=42), nullable=False),
        sa.Column("opened_epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["submission_id"],
            ["submission.submission_id"],
        ),
        sa.PrimaryKeyConstraint("submission_id", "round", "draw"),
    )
    with op.batch_alter_table("draw", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_draw_seat"), ["seat"], unique=False)
        batch_op.create_index(batch_op.f("ix_draw_validator"), ["validator"], unique=False)


def _create_group() -> None:
    op.create_table(
        "group",
        sa.Column("submission_id", sa.String(length=66), nullable=False),
        sa.Column("group", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("policy_version", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("has_variance", sa.Boolean(), nullable=False),
        sa.Column("mean_reward", sa.Double(), nullable=False),
        sa.Column("num_tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("use", sa.String(), nullable=True),
        sa.Column("unused_reason", sa.String(), nullable=True),
        sa.Column("batch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.ForeignKeyConstraint(
            ["submission_id"],
            ["submission.submission_id"],
        ),
        sa.PrimaryKeyConstraint("submission_id", "group"),
    )
    with op.batch_alter_table("group", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_group_batch"), ["batch"], unique=False)
        batch_op.create_index("ix_group_pending", ["use", "policy_version"], unique=False)


def _create_verdict() -> None:
    op.create_table(
        "verdict",
        sa.Column("submission_id", sa.String(length=66), nullable=False),
        sa.Column("round", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("draw", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seat", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("validator", sa.String(length=42), nullable=False),
        sa.Column("outcome", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("signed_verdict", sa.JSON(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("opening", sa.JSON(), nullable=False),
        sa.Column("in_time", sa.Boolean(), nullable=False),
        sa.Column("log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(
            ["submission_id"],
            ["submission.submission_id"],
        ),
        sa.PrimaryKeyConstraint("submission_id", "round", "draw"),
    )
    with op.batch_alter_table("verdict", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_verdict_validator"), ["validator"], unique=False)
