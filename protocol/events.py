"""Events of the log as a reader has them, and which of them are about one hash.

In: the canonical documents behind leaves, from a log that may have been written by anybody. Out: `LogEvent`, and
`Related`: every leaf about a submission, a task, a batch, weights or any other subject. A submission's are also those
of its task, of the batches that its groups went into, and the reorgs that void copies of contract events about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from protocol.canonical import MAX_SAFE_INTEGER, is_hash32
from protocol.errors import VerificationFailed
from protocol.reasons import RejectReason
from protocol.wire import ZERO_HASH, Hash32, SchemaVersion, UInt64

RECEIVED, ACCEPTED, BATCHED, REORGED = "submission.received", "submission.accepted", "batch.leased", "chain.reorged"
RENEWED = "task.renewed"
TYPES = (
    *(f"task.{one}" for one in ("leased", "renewed", "expired", "abandoned", "reorged")),
    *(f"submission.{one}" for one in ("received", "refused", "accepted", "rejected", "disputed", "challenged")),
    *("draw.opened", "draw.missed", "verdict.committed", "verdict.revealed", "stamp.disputed"),
    *(f"reaudit.{one}" for one in ("drawn", "agreed", "disagreed", "undecided")),
    *("group.unused", "batch.leased", "batch.consumed", "batch.refused"),
    *("weights.announced", "earnings.proposed", "door.refused", "epoch.closed", "chain.reorged"),
)
"""Every type of leaf, but copies of contract events: docs/protocol.md says what each is."""
CHAIN = "chain."
MAX_RELATED = 10_000
"""Leaves about one subject: a submission has some dozens."""
MAX_OF_TYPE = 100_000
"""Leaves of a type that are looked through for those about it."""

_ADDRESS = re.compile("0x[0-9a-f]{40}")
_AMOUNT = re.compile("[0-9]{1,78}")
_CODE = re.compile("[a-z][a-z0-9_]{0,63}")
_LAST_SECOND = 253_402_300_799
"""Of the year 9999."""


class LogEvent(BaseModel):
    """One event; what its `data` says is asked for by properties, None where it says nothing of the kind."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    schema_version: SchemaVersion
    index: UInt64
    type: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.]{0,99}$")]
    subject: Hash32
    time: UInt64
    """Chain seconds."""
    data: dict[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LogEvent:
        """Raises VerificationFailed where it has another form than docs/protocol.md gives events."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise VerificationFailed(
                f"leaf {document.get('index')!s:.20} holds no event", f"{first['msg']} at {place}"
            ) from error

    @property
    def is_chain_copy(self) -> bool:
        return self.type.startswith(CHAIN) and self.type != REORGED

    @property
    def node(self) -> str | None:
        return self._address("node")

    @property
    def provider(self) -> str | None:
        return self._address("provider")

    @property
    def validator(self) -> str | None:
        return self._address("validator")

    @property
    def seat(self) -> int | None:
        return self.number("seat")

    @property
    def units(self) -> int | None:
        return self.number("num_units")

    @property
    def block(self) -> int | None:
        """Of the contract's event that it copies."""
        block = self.data.get("block") if self.is_chain_copy else None
        return block if isinstance(block, int) and not isinstance(block, bool) and block >= 0 else None

    @property
    def amount_wei(self) -> int | None:
        """What a settling pays the provider, or the amount that a contract's event names."""
        value = self.data.get("amount_wei") if not self.is_chain_copy else self._said("amount")
        return int(value) if isinstance(value, str) and _AMOUNT.fullmatch(value) else None

    @property
    def reason(self) -> str | None:
        """The reason's code; contracts say its number."""
        value = self._said("reason")
        if not isinstance(value, str):
            return None
        if not self.is_chain_copy:
            return value if _CODE.fullmatch(value) else None
        return REASONS_ON_CHAIN.get(value)

    def number(self, name: str) -> int | None:
        """A count that it names; contracts' come as decimal text."""
        value = self._said(name)
        if isinstance(value, str) and self.is_chain_copy and _AMOUNT.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return value if 0 <= value <= MAX_SAFE_INTEGER else None

    def text(self, name: str) -> str:
        """An address or amount that it names, as it stands there; "?" where it names none."""
        value = self._said(name)
        is_known = isinstance(value, str) and (_ADDRESS.fullmatch(value) or _AMOUNT.fullmatch(value))
        return str(value) if is_known else "?"

    def hash(self, name: str) -> str | None:
        """An id that it names; None for zero, which is nobody's."""
        value = self._said(name)
        return value if isinstance(value, str) and is_hash32(value) and value != ZERO_HASH else None

    def has_group_of(self, submission_id: str) -> bool:
        """Whether it hands the trainer a group of that submission."""
        groups = self.data.get("groups") if self.type == BATCHED else None
        return isinstance(groups, list) and any(isinstance(g, list) and g[:1] == [submission_id] for g in groups)

    def voids(self, copy: LogEvent) -> bool:
        """Whether it says that the chain has dropped the block of an earlier copy."""
        if self.type != REORGED or copy.block is None or copy.index > self.index:
            return False
        fork = self.data.get("fork_block")
        return isinstance(fork, int) and copy.block > fork

    def _said(self, name: str) -> object:
        arguments = self.data.get("arguments") if self.is_chain_copy else self.data
        return arguments.get(name) if isinstance(arguments, dict) else None

    def _address(self, name: str) -> str | None:
        value = self._said(name)
        return value if isinstance(value, str) and _ADDRESS.fullmatch(value) else None


REASONS_ON_CHAIN = {str(reason.code): reason.value for reason in RejectReason}
"""A reason's code, by the decimal text of its number in a contract's event."""


class EventSource(Protocol):
    """A log that answers for one subject or one type: a coordinator's own, or what it serves."""

    @property
    def max_async(self) -> int:
        """How many versions old a group may be that is trained on."""
        ...

    def about(self, subject: str) -> Iterable[LogEvent]:
        """Leaves about `subject`, in order."""
        ...

    def of_type(self, event_type: str, start: int) -> Iterable[LogEvent]:
        """Leaves of a type from number `start` on, in order."""
        ...


@dataclass(frozen=True)
class Related:
    """What the log has about `subject`, in order. `submission_id` and `task_id` name the work that it is part of."""

    subject: str
    submission_id: str | None
    task_id: str | None
    events: tuple[LogEvent, ...]

    def includes(self, event: LogEvent) -> bool:
        """Whether `event` must be among `events`: for whoever goes through the whole log."""
        if event.subject in (self.subject, self.submission_id, self.task_id):
            return True
        if event.type == RECEIVED and self.task_id is not None and event.hash("task_id") == self.task_id:
            return True
        if event.type == REORGED:
            return any(event.voids(copy) for copy in self.events)
        if self.submission_id is not None and event.has_group_of(self.submission_id):
            return True
        return any(event.subject == batch.subject for batch in self.events if batch.type == BATCHED)


def related_events(source: EventSource, subject: str) -> Related:
    """Every leaf about `subject`; none where the log has nothing about it."""
    own = _bounded(source.about(subject))
    received = _first(own, RECEIVED) or _received_for(source, subject, own)
    if received is None:
        is_task = _first(own, "task.leased") is not None
        events = (*own, *_reorgs(source, own))
        return Related(subject, None, subject if is_task else None, _in_order(events))
    submission_id, task_id = received.subject, received.hash("task_id")
    others = [other for other in (submission_id, task_id) if other is not None and other != subject]
    work = [*own, *chain.from_iterable(_bounded(source.about(other)) for other in others)]
    batches = _batches(source, received, work)
    events = (*work, *_bounded(event for root in batches for event in source.about(root)), *_reorgs(source, work))
    return Related(subject, submission_id, task_id, _in_order(events))


def standing_events(events: Sequence[LogEvent]) -> Iterator[LogEvent]:
    """Without copies of contract events that the chain has dropped, and the leaves that say so."""
    reorgs = [event for event in events if event.type == REORGED]
    for event in events:
        if event.type != REORGED and not any(reorg.voids(event) for reorg in reorgs):
            yield event


def utc(seconds: int) -> str:
    """Chain seconds for people."""
    if seconds > _LAST_SECOND:
        return f"chain time {seconds}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _received_for(source: EventSource, task_id: str, own: Sequence[LogEvent]) -> LogEvent | None:
    """The leaf of what was handed in for a task; it comes before the deadline. None where the subject is no task."""
    leased = _first(own, "task.leased")
    terms = [event for event in own if event is leased or event.type == RENEWED]
    deadlines = [deadline for event in terms if (deadline := event.number("deadline")) is not None]
    if leased is None or not deadlines:
        return None
    deadline = max(deadlines)
    for event in source.of_type(RECEIVED, leased.index):
        if event.time > deadline:
            return None
        if event.hash("task_id") == task_id:
            return event
    return None


def _batches(source: EventSource, received: LogEvent, work: Sequence[LogEvent]) -> list[str]:
    """Roots of the batches with its groups: those of the steps for which it is fresh enough, once it is accepted."""
    accepted, version = _first(work, ACCEPTED), received.number("policy_version")
    if accepted is None or version is None:
        return []
    roots = []
    for event in _looked_through(source, BATCHED, accepted.index):
        step = event.number("step")
        if step is None or step > version + 1 + source.max_async:
            break
        if event.has_group_of(received.subject):
            roots.append(event.subject)
    return list(dict.fromkeys(roots))


def _reorgs(source: EventSource, events: Sequence[LogEvent]) -> list[LogEvent]:
    """The reorgs that void one of these."""
    copies = [event for event in events if event.is_chain_copy]
    if not copies:
        return []
    reorgs = _looked_through(source, REORGED, min(copy.index for copy in copies))
    return _bounded(reorg for reorg in reorgs if any(reorg.voids(copy) for copy in copies))


def _looked_through(source: EventSource, event_type: str, start: int) -> Iterator[LogEvent]:
    """Raises VerificationFailed for a log that has no end of them."""
    for number, event in enumerate(source.of_type(event_type, start)):
        if number == MAX_OF_TYPE:
            raise VerificationFailed(f"the log has too many {event_type}", f"{MAX_OF_TYPE} from leaf {start} on")
        yield event


def _bounded(events: Iterable[LogEvent]) -> list[LogEvent]:
    """All of them. Raises VerificationFailed for a log that has no end."""
    found = list(islice(events, MAX_RELATED + 1))
    if len(found) > MAX_RELATED:
        raise VerificationFailed(
            "the log has too much about one subject", f"{found[0].subject}: more than {MAX_RELATED} leaves"
        )
    return found


def _first(events: Iterable[LogEvent], event_type: str) -> LogEvent | None:
    return next((event for event in events if event.type == event_type), None)


def _in_order(events: Iterable[LogEvent]) -> tuple[LogEvent, ...]:
    return tuple(found for _, found in sorted({event.index: event for event in events}.items()))
