"""How Alembic reaches the database: over the connection that `coordinator/db/migrate.py` hands in."""

from __future__ import annotations

from alembic import context

from coordinator.db import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
