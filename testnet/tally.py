"""What a run has come to so far, counted from the audit log's events alone.

In: `LogEntry`s in order. Out: a `Tally` that the live table and the summary read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from protocol.api import LogEntry


@dataclass
class NodeTally:
    """One worker's tasks and submissions."""

    working: set[str] = field(default_factory=set)
    """Ids of tasks that are leased and neither handed in nor given up."""
    unsettled: set[str] = field(default_factory=set)
    """Ids of tasks whose submission is still to be judged."""
    received: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    earned_wei: int = 0
    first_reason: str | None = None
    """Why its first settled submission was rejected; None if it was accepted."""
    settled: int = 0


@dataclass
class Tally:
    """Counts over all events so far; addresses are lower-case 0x-hex."""

    nodes: dict[str, NodeTally] = field(default_factory=dict)
    step: int = 0
    policy_version: int | None = None
    epochs: int = 0
    batches: int = 0
    """Batches that the trainer was given, the one it works on included."""
    leased: int = 0
    expired: int = 0
    slashed: dict[str, int] = field(default_factory=dict)
    """Amount in base units by provider."""
    accused: set[str] = field(default_factory=set)
    """Providers with a case on chain."""
    accepted_ids: list[str] = field(default_factory=list)
    rejected_ids: dict[str, str] = field(default_factory=dict)
    """Reason by submission id."""
    slashed_ids: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        return len(self.accepted_ids)

    @property
    def rejected(self) -> int:
        return len(self.rejected_ids)

    @property
    def rejected_by_reason(self) -> dict[str, int]:
        return dict(sum((node.rejected for node in self.nodes.values()), Counter[str]()))

    @property
    def working(self) -> int:
        """Tasks that some worker has at hand."""
        return sum(len(node.working) for node in self.nodes.values())

    @property
    def unsettled(self) -> int:
        """Submissions that are still to be judged."""
        return sum(len(node.unsettled) for node in self.nodes.values())

    def node(self, address: str) -> NodeTally:
        return self.nodes.setdefault(address, NodeTally())

    def count(self, entry: LogEntry) -> None:
        """Take one event in; events that nothing here is counted from are passed over."""
        handler = _HANDLERS.get(entry.event["type"])
        if handler is not None:
            handler(self, entry.subject, entry.event["time"], entry.event["data"])


def _leased(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    tally.leased += 1
    tally.node(data["node"]).working.add(subject)


def _ended(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    node = tally.node(data["node"])
    node.working.discard(subject)
    node.unsettled.discard(subject)


def _expired(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    tally.expired += 1
    _ended(tally, subject, time, data)


def _received(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    node = tally.node(data["node"])
    node.received += 1
    node.working.discard(data["task_id"])
    node.unsettled.add(data["task_id"])


def _accepted(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    if subject in tally.accepted_ids:  # a re-audit has confirmed it
        return
    node = tally.node(data["node"])
    node.accepted += 1
    node.settled += 1
    node.unsettled.discard(data["task_id"])
    node.earned_wei += int(data["amount_wei"])
    tally.accepted_ids.append(subject)


def _rejected(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    if subject in tally.rejected_ids:
        return
    node = tally.node(data["node"])
    node.rejected[data["reason"]] += 1
    if node.settled == 0:
        node.first_reason = data["reason"]
    node.settled += 1
    node.unsettled.discard(data["task_id"])
    tally.rejected_ids[subject] = data["reason"]


def _slashed(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    arguments = data["arguments"]
    tally.slashed[arguments["provider"]] = tally.slashed.get(arguments["provider"], 0) + int(arguments["amount"])
    tally.slashed_ids.append(arguments["submission_id"])


def _accused(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    tally.accused.add(data["arguments"]["provider"])


def _consumed(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    tally.step = max(tally.step, int(data["step"]))


def _announced(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    tally.policy_version = max(tally.policy_version or 0, int(data["policy_version"]))


def _closed(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    tally.epochs += 1


def _batched(tally: Tally, subject: str, time: int, data: dict[str, Any]) -> None:
    tally.batches += 1


_HANDLERS: dict[str, Callable[[Tally, str, int, dict[str, Any]], None]] = {
    "submission.received": _received,
    "submission.accepted": _accepted,
    "submission.rejected": _rejected,
    "chain.Slashed": _slashed,
    "chain.Accused": _accused,
    "batch.consumed": _consumed,
    "weights.announced": _announced,
    "batch.leased": _batched,
    "epoch.closed": _closed,
    "task.leased": _leased,
    "task.expired": _expired,
    "task.abandoned": _ended,
    "task.reorged": _ended,
}
