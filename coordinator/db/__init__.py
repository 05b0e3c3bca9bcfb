"""The coordinator's tables: chain mirrors, work, the log."""

from coordinator.db import chain, log, work
from coordinator.db.base import Base

__all__ = ["Base", "chain", "log", "work"]
