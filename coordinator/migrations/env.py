"""How Alembic reaches the database: over the connection that `coordinator/db/migrate.py` hands in."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context

from coordinator.db import Base
from coordinator.db.base import WeiText


def _render(kind: str, item: Any, _autogenerate: Any) -> str | Literal[False]:
    """A step must not change when our own column types do."""
    return f"sa.String(length={item.impl.length})" if kind == "type" and isinstance(item, WeiText) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    render_item=_render,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
