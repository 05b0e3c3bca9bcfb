"""Re-audits and reviews of work stamps; a pool that is indexed already gets its rate from its event."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_reaudit()
    _create_stamp_review()
    _add_rate()


def downgrade() -> None:
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.drop_column("reaudit_bps")
    op.drop_table("stamp_review")
    op.drop_table("reaudit")


def _create_reaudit() -> None:
    op.create_table(
        "reaudit",
        sa.Column("submission_id", sa.String(length=66), nullable=False),
        sa.Column("epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("asked_epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("is_asking", sa.Boolean(), nullable=False),
        sa.Column("num_wanted", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("paid", sa.JSON(), nullable=False),
        sa.Column("reserved_wei", sa.String(length=78), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submission.submission_id"]),
        sa.PrimaryKeyConstraint("submission_id"),
    )
    with op.batch_alter_table("reaudit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_reaudit_asked_epoch"), ["asked_epoch"], unique=False)
        batch_op.create_index(batch_op.f("ix_reaudit_epoch"), ["epoch"], unique=False)
        batch_op.create_index(batch_op.f("ix_reaudit_state"), ["state"], unique=False)


def _create_stamp_review() -> None:
    op.create_table(
        "stamp_review",
        sa.Column("submission_id", sa.String(length=66), nullable=False),
        sa.Column("round", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seat", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reviewer", sa.String(length=42), nullable=False),
        sa.Column("validator", sa.String(length=42), nullable=False),
        sa.Column("agrees", sa.Boolean(), nullable=False),
        sa.Column("largest_difference", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["submission_id"], ["submission.submission_id"]),
        sa.PrimaryKeyConstraint("submission_id", "round", "seat", "reviewer"),
    )
    with op.batch_alter_table("stamp_review", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_stamp_review_validator"), ["validator"], unique=False)


def _add_rate() -> None:
    count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.add_column(sa.Column("reaudit_bps", count, nullable=False, server_default="0"))
    pool = sa.table("pool", sa.column("pool_id"), sa.column("reaudit_bps"))
    event = sa.table("chain_event", sa.column("name"), sa.column("arguments", sa.JSON()))
    created = op.get_bind().execute(sa.select(event.c.arguments).where(event.c.name == "PoolCreated")).scalars()
    for arguments in created.all():
        is_it = pool.c.pool_id == arguments["pool_id"]
        op.execute(sa.update(pool).where(is_it).values(reaudit_bps=arguments["config"]["reaudit_bps"]))
