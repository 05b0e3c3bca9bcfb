"""A leaf of the log as a flat row, the same in every format of `proofpool audit export`.

In: an event with its epoch. Out: `Row`: numbers and text, None where the event says nothing of the kind; `data` has all
that it says. Flat columns hold only what has the form of its kind: nothing that a coordinator logs is a formula there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from protocol.api import LogEntry
from protocol.canonical import canonical_json
from protocol.events import LogEvent


@dataclass(frozen=True, slots=True)
class Row:
    """Field order is column order. Amounts are decimal text: they pass 2^63."""

    index: int
    epoch: int
    time: int
    type: str
    subject: str
    node: str | None
    provider: str | None
    validator: str | None
    seat: int | None
    reason: str | None
    units: int | None
    amount_wei: str | None
    block: int | None
    leaf_hash: str
    data: str

    def values(self) -> Sequence[int | str | None]:
        """In the order of `COLUMNS`."""
        found: Sequence[int | str | None] = _VALUES(self)
        return found


COLUMNS = tuple(field.name for field in fields(Row))
_VALUES = attrgetter(*COLUMNS)
NUMBERS = frozenset({"index", "epoch", "time", "seat", "units", "block"})
"""Columns of whole numbers below 2^53; all others are text."""


def row_of(epoch: int, event: LogEvent, entry: LogEntry) -> Row:
    amount_wei = event.amount_wei
    return Row(
        index=event.index,
        epoch=epoch,
        time=event.time,
        type=event.type,
        subject=event.subject,
        node=event.node,
        provider=event.provider,
        validator=event.validator,
        seat=event.seat,
        reason=event.reason,
        units=event.units,
        amount_wei=None if amount_wei is None else str(amount_wei),
        block=event.block,
        leaf_hash=entry.leaf_hash,
        data=canonical_json(event.data).decode(),
    )
