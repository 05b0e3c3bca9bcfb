"""A step may have several batches: all but the last one refused by the trainer."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

NAMES = {"uq": "%(table_name)s_%(column_0_name)s_key"}
"""What PostgreSQL calls a unique constraint that has no name of its own; SQLite's gets the same one here."""


def upgrade() -> None:
    with op.batch_alter_table("batch", naming_convention=NAMES) as batch_op:
        batch_op.drop_constraint("batch_step_key", type_="unique")
        batch_op.create_index(batch_op.f("ix_batch_step"), ["step"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("batch", naming_convention=NAMES) as batch_op:
        batch_op.drop_index(batch_op.f("ix_batch_step"))
        batch_op.create_unique_constraint("batch_step_key", ["step"])
