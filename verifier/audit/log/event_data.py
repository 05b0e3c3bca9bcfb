"""What reports read of an event's data: a coordinator may have logged anything, so each shape is checked.

In: log entries. Out: frozen shapes, or None and one more on the count of what couldn't be read.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints, ValidationError

from protocol.api import LogEntry
from protocol.canonical import MAX_SAFE_INTEGER
from protocol.wire import Address

Count = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
WeiText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,39}$")]
Reason = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]


class EventData(BaseModel):
    """There may be more in the event than is read of it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Paying(EventData):
    payments: list[Annotated[tuple[Address, WeiText], Strict(False)]] = []


class ChainCopy(EventData):
    """A copy of a contract's event; its integers are decimal text."""

    block: Count
    arguments: dict[str, Any]


class Reorged(EventData):
    """Copies of later blocks are void."""

    fork_block: int


T = TypeVar("T", bound=EventData)


class Readings:
    """Reads events, and counts what it can't."""

    def __init__(self) -> None:
        self.num_unreadable = 0
        self.first_unreadable: int | None = None
        """Its leaf."""

    def read(self, shape: type[T], entry: LogEntry) -> T | None:
        try:
            return shape.model_validate(entry.event.get("data"))
        except ValidationError:
            self.pass_over(entry)
            return None

    def pass_over(self, entry: LogEntry) -> None:
        """Count an event that can't be used."""
        self.num_unreadable += 1
        self.first_unreadable = entry.index if self.first_unreadable is None else self.first_unreadable

    def as_json(self) -> dict[str, int | None]:
        return {"num_unreadable": self.num_unreadable, "first_unreadable": self.first_unreadable}


def kind_of(entry: LogEntry) -> str:
    kind = entry.event.get("type")
    return kind if isinstance(kind, str) else ""


def time_of(entry: LogEntry) -> int:
    """Chain seconds; 0 where the event names none."""
    time = entry.event.get("time")
    return time if isinstance(time, int) else 0
