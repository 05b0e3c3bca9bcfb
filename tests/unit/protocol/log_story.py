"""A log in memory, for tests of what is about whom and what happened: `story.tell("task.leased", TASK, node=NODE)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from protocol.events import LogEvent, related_events
from protocol.fate import Fate, fate_of
from protocol.wire import ZERO_HASH

NODE, PROVIDER = "0x" + "aa" * 20, "0x" + "bb" * 20
TASK, SUBMISSION = "0x" + "01" * 32, "0x" + "02" * 32


@dataclass
class Story:
    """Events in order, a minute apart, and an `EventSource` over them."""

    events: list[LogEvent] = field(default_factory=list)
    max_async: int = 2

    def tell(self, event_type: str, subject: str = ZERO_HASH, **data: Any) -> LogEvent:
        document = {"type": event_type, "subject": subject, "time": 60 * len(self.events), "data": data}
        event = LogEvent.of({"schema_version": 1, "index": len(self.events), **document})
        self.events.append(event)
        return event

    def copy(self, name: str, subject: str = SUBMISSION, block: int = 7, **arguments: Any) -> LogEvent:
        """A copy of a contract's event."""
        return self.tell(f"chain.{name}", subject, contract="court", block=block, arguments=arguments)

    def submit(self, subject: str = SUBMISSION, task_id: str = TASK) -> None:
        self.tell("task.leased", task_id, node=NODE, provider=PROVIDER, deadline=60 * len(self.events) + 600)
        self.tell("submission.received", subject, task_id=task_id, node=NODE, policy_version=3, num_units=48)

    def accept(self, subject: str = SUBMISSION) -> None:
        about = {"task_id": TASK, "node": NODE, "provider": PROVIDER, "num_units": 48}
        self.tell("submission.accepted", subject, **about, amount_wei="144", reason=None)

    def reject(self, reason: str = "wrong_prompts") -> None:
        about = {"task_id": TASK, "node": NODE, "provider": PROVIDER, "num_units": 48}
        self.tell("submission.rejected", SUBMISSION, **about, amount_wei="0", reason=reason)

    def about(self, subject: str) -> Iterator[LogEvent]:
        return (event for event in self.events if event.subject == subject)

    def of_type(self, event_type: str, start: int) -> Iterator[LogEvent]:
        return (event for event in self.events[start:] if event.type == event_type)

    def fate(self, subject: str = SUBMISSION) -> Fate:
        return fate_of(related_events(self, subject))
