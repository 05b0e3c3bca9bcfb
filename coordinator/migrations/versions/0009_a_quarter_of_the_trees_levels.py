"""Of the log's tree only every fourth level is stored, and leaves with their events (`coordinator/log_nodes.py`)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from protocol.merkle.history import Frontier

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

LEVELS = 4


def upgrade() -> None:
    op.execute(f"DELETE FROM log_node WHERE level % {LEVELS} <> 0 OR level = 0")


def downgrade() -> None:
    """Each subtree is hashed again from the leaves."""
    node = sa.table("log_node", sa.column("level"), sa.column("position"), sa.column("node_hash"))
    event = sa.table("event", sa.column("index"), sa.column("leaf_hash"))
    connection, frontier = op.get_bind(), Frontier()
    connection.execute(sa.delete(node))
    leaves = connection.scalars(sa.select(event.c.leaf_hash).order_by(event.c.index)).all()
    for leaf in leaves:
        connection.execute(sa.insert(node), [one._asdict() for one in frontier.append(leaf)])
