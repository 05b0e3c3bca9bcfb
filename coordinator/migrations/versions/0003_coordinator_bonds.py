"""Bonds of coordinators; a pool that is indexed already is of contracts that know none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "coordinator_bond",
        sa.Column("pool_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("coordinator", sa.String(length=42), nullable=False),
        sa.Column("amount_wei", sa.String(length=78), nullable=False),
        sa.PrimaryKeyConstraint("pool_id", "coordinator"),
    )
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.add_column(sa.Column("coordinator_bond_wei", sa.String(length=78), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.drop_column("coordinator_bond_wei")
    op.drop_table("coordinator_bond")
