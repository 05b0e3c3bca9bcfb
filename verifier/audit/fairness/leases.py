"""Every lease in the log and how it ended: leases = received + expired + abandoned + reorged + open.

    task.leased ─┬─▶ submission.received ─▶ accepted | rejected | disputed | challenged | waiting
                 └─▶ task.expired | task.abandoned | task.reorged | nothing yet

In: events in order. Out: `Leases`, which `verifier/audit/fairness/fairness.py` counts by provider and node.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from protocol.api import LogEntry
from protocol.wire import Hash32
from verifier.audit.fairness.questions import Asked, Leased, Measures, Questions
from verifier.audit.log.event_data import ChainCopy, Count, EventData, Readings, Reason, kind_of


class End(StrEnum):
    """What became of a lease."""

    RECEIVED = "received"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    REORGED = "reorged"
    OPEN = "open"


class Judgement(StrEnum):
    """Where a received submission stands: waiting for its verdicts, or one of the log's standings."""

    WAITING = "waiting"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DISPUTED = "disputed"
    CHALLENGED = "challenged"


class _Received(EventData):
    task_id: Hash32
    content_hash: Hash32
    num_rollouts: Count
    num_units: Count


class _Settled(EventData):
    reason: Reason | None = None


@dataclass(slots=True)
class Lease:
    """A lease. `measures` is None where its task doesn't follow from the log."""

    node: str
    provider: str
    rules_hash: str
    measures: Measures | None
    beacon: tuple[int, str] | None = None
    """The policy version, and the beacon that its task names."""
    end: End = End.OPEN


@dataclass(slots=True)
class Work:
    """What was handed in for a lease. `epoch` anchors the leaf that says so."""

    lease: Lease
    epoch: int
    content_hash: str
    num_rollouts: int
    num_units: int
    judgement: Judgement = Judgement.WAITING
    reason: str = ""
    """Why it was rejected."""


ENDS = {"task.expired": End.EXPIRED, "task.abandoned": End.ABANDONED, "task.reorged": End.REORGED}
JUDGEMENTS = {f"submission.{one.value}": one for one in Judgement if one is not Judgement.WAITING}


class Leases:
    """Example: `leases.note(epoch, entry)` for each event, then `leases.leases` and `leases.work`."""

    def __init__(self, questions: Questions) -> None:
        self.readings = Readings()
        self.leases: dict[str, Lease] = {}
        """By task id."""
        self.work: dict[str, Work] = {}
        """By submission id."""
        self.num_unexplained = 0
        """Events about tasks and submissions that the log hasn't, or that were over."""
        self._questions = questions

    def note(self, epoch: int, entry: LogEntry) -> None:
        """Take in one event; those about something else are passed over."""
        kind = kind_of(entry)
        if kind == "task.leased":
            self._lease(entry)
        elif kind == "submission.received":
            self._receive(epoch, entry)
        elif kind == "task.renewed":
            self.num_unexplained += not self._is_open(entry.subject)
        elif kind in ENDS:
            self._end(entry, ENDS[kind])
        elif kind in JUDGEMENTS:
            self._judge(entry, JUDGEMENTS[kind])
        elif kind.startswith("chain.") and kind != "chain.reorged":
            copy = self.readings.read(ChainCopy, entry)
            if copy is not None:
                self._questions.terms.note(kind.removeprefix("chain."), copy.arguments)

    def _lease(self, entry: LogEntry) -> None:
        leased = self.readings.read(Leased, entry)
        if leased is None:
            return
        if entry.subject in self.leases:
            self.num_unexplained += 1
            return
        asked: Asked | None = self._questions.asked(entry.subject, leased)
        self.leases[entry.subject] = Lease(
            node=leased.node,
            provider=leased.provider,
            rules_hash=asked.task.rules_hash if asked else "",
            measures=asked.measures if asked else None,
            beacon=(asked.task.policy_version, asked.task.beacon_hash) if asked else None,
        )

    def _receive(self, epoch: int, entry: LogEntry) -> None:
        received = self.readings.read(_Received, entry)
        lease = self.leases.get(received.task_id) if received is not None else None
        if received is None or lease is None or lease.end is not End.OPEN or entry.subject in self.work:
            self.num_unexplained += received is not None
            return
        lease.end = End.RECEIVED
        self.work[entry.subject] = Work(lease, epoch, received.content_hash, received.num_rollouts, received.num_units)

    def _is_open(self, task_id: str) -> bool:
        lease = self.leases.get(task_id)
        return lease is not None and lease.end is End.OPEN

    def _end(self, entry: LogEntry, end: End) -> None:
        lease = self.leases.get(entry.subject)
        may_end = (End.OPEN, End.RECEIVED) if end is End.REORGED else (End.OPEN,)
        if lease is None or lease.end not in may_end:
            self.num_unexplained += 1
            return
        lease.end = end

    def _judge(self, entry: LogEntry, judgement: Judgement) -> None:
        settled, work = self.readings.read(_Settled, entry), self.work.get(entry.subject)
        if settled is None or work is None:
            self.num_unexplained += settled is not None
            return
        work.judgement = judgement
        if judgement is Judgement.REJECTED:
            work.reason = settled.reason or "unknown"
