"""Epochs keep their signed checkpoint."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("epoch", schema=None) as batch_op:
        batch_op.add_column(sa.Column("checkpoint", sa.String(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("epoch", schema=None) as batch_op:
        batch_op.drop_column("checkpoint")
