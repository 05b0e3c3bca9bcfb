"""What a provider is woken for: conditions that hold now, as incidents that open and close.

    nothing_accepted   no submission accepted for `alert_minutes`   stake_low    less is allotted than the pool asks
    version_required   the coordinator speaks another version       disk_short   less than `alert_disk_bytes` is free
    accused            an accusation that can be appealed           slashed      a case took stake: told once
    rules_changed      the pool's rules are others: told once

In: a status, the free disk, what was known before. Out: `Memory` with the incidents that are open, and the messages to
send. Pure: sending and keeping is `worker/alerts.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.amount import format_amount
from protocol.canonical import hex0x, sha256
from protocol.client import UNUSABLE
from protocol.reasons import RejectReason
from worker.payment import OPEN_CASES, PaymentState
from worker.status import NodeStatus

Kind = Literal["nothing_accepted", "version_required", "rules_changed", "stake_low", "disk_short", "accused", "slashed"]
LASTING: tuple[Kind, ...] = ("slashed", "rules_changed")
"""What has happened, and isn't over at a later look: told once."""
MAX_UNSENT = 200
RECENT_SECONDS = 60.0
"""An answer that is older isn't this look's."""
MAX_TOLD = 1000


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Incident(_Shape):
    """`subject` tells incidents of a kind apart: a submission, a rules hash, or empty."""

    kind: Kind
    subject: str
    summary: str
    todo: str
    opened_time: float

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.subject


class AlertMessage(_Shape):
    """The body that a webhook gets. `incident_id` is the same in both messages about an incident; times are Unix."""

    schema_version: Literal[1] = 1
    event: Literal["opened", "closed"]
    incident_id: str
    kind: Kind
    subject: str
    summary: str
    todo: str
    node: str
    pool_id: int
    opened_time: float
    time: float


class Memory(_Shape):
    """What must survive a restart, so that nothing is told twice or forgotten. `told` are keys of lasting incidents."""

    schema_version: Literal[1] = 1
    open: tuple[Incident, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    unsent: tuple[AlertMessage, ...] = ()
    newest_accepted: int | None = None
    """Chain time of the newest acceptance that was ever seen."""
    accepted_time: float
    """When it was first seen here, or the watch began."""
    rules_hash: str | None = None

    @property
    def num_open(self) -> Counter[str]:
        return Counter(incident.kind for incident in self.open)


class Limits(_Shape):
    """From when on it is an incident."""

    minutes: float
    disk_bytes: int
    pool_id: int


def advance(memory: Memory, status: NodeStatus, free_bytes: int, limits: Limits, now: float) -> Memory:
    """One look: what opened and what is over, with the messages for both at the end of `unsent`.

    What can't be told, since nobody answers, neither opens nor closes.
    """
    memory = _with_accepted(memory, status, now)
    found = {incident.key: incident for incident in _found(memory, status, free_bytes, limits, now)}
    before = {incident.key: incident for incident in memory.open}
    new = [one for key, one in found.items() if key not in (*before, *memory.told)]
    over = [one for key, one in before.items() if key not in found and _is_known(one.kind, status)]
    still = [one for key, one in before.items() if one not in over]
    told = [one.key for one in new if one.kind == "slashed"]
    messages = [_message("opened", one, status, limits, now) for one in new]
    messages += [_message("closed", one, status, limits, now) for one in over]
    return memory.model_copy(
        update={
            "open": (*still, *(one for one in new if one.kind not in LASTING)),
            "told": (*memory.told, *told)[-MAX_TOLD:],
            "unsent": (*memory.unsent, *messages)[-MAX_UNSENT:],
            "rules_hash": status.rules_hash or memory.rules_hash,
        }
    )


def _with_accepted(memory: Memory, status: NodeStatus, now: float) -> Memory:
    newest = status.accepted_time
    if newest is None or newest <= (memory.newest_accepted or 0):
        return memory
    return memory.model_copy(update={"newest_accepted": newest, "accepted_time": now})


def _found(memory: Memory, status: NodeStatus, free_bytes: int, limits: Limits, now: float) -> Iterator[Incident]:
    idle_seconds = now - memory.accepted_time
    if idle_seconds >= 60 * limits.minutes:
        why = f"no submission was accepted for {idle_seconds / 60:.0f} minutes; {status.verdict}: {status.why}"
        yield _incident("nothing_accepted", "", why, status.todo, now)
    if (status.allotment_wei or 0) < (status.min_allotment_wei or 0):
        why = f"{format_amount(status.allotment_wei or 0)} of {format_amount(status.min_allotment_wei or 0)} credits"
        yield _incident("stake_low", "", f"{why} are allotted: no task is leased", "allot more to this node", now)
    if memory.rules_hash is not None and status.rules_hash not in (None, memory.rules_hash):
        why = f"the pool's rules are {status.rules_hash} now, were {memory.rules_hash}"
        yield _incident("rules_changed", status.rules_hash or "", why, "`proofpool worker doctor` says what lacks", now)
    if why := _other_version(status):
        yield _incident("version_required", "", why, "install the version that the pool uses", now)
    if free_bytes < limits.disk_bytes:
        why = f"{free_bytes / 2**30:.2f} GiB are free under data_dir, {limits.disk_bytes / 2**30:.2f} should be"
        yield _incident("disk_short", "", why, "make room: a full disk stops the work", now)
    yield from _cases(status, now)


def _other_version(status: NodeStatus) -> str:
    """What can't be understood, or isn't; empty where both speak the same."""
    unusable = [line for line in status.unanswered if line.startswith(UNUSABLE)]
    refused = f"refused: {RejectReason.SCHEMA_INVALID.value}"
    return next(iter([*unusable, *(one.why for one in status.process.waiting if one.obstacle == refused)]), "")


def _cases(status: NodeStatus, now: float) -> Iterator[Incident]:
    for row in status.recent:
        if row.payment.state in OPEN_CASES:
            yield _incident("accused", row.submission_id, row.payment.words, row.payment.todo, now)
        if row.payment.state is PaymentState.SLASHED:
            yield _incident("slashed", row.submission_id, row.payment.words, row.payment.todo, now)


def _is_known(kind: Kind, status: NodeStatus) -> bool:
    """Whether this look could have seen it."""
    asked = {
        "stake_low": status.as_of.chain,
        "accused": status.as_of.chain,
        "version_required": status.as_of.coordinator,
    }
    time = asked.get(kind, status.time)
    return time is not None and time >= status.time - RECENT_SECONDS


def _incident(kind: Kind, subject: str, summary: str, todo: str, now: float) -> Incident:
    return Incident(kind=kind, subject=subject, summary=summary, todo=todo, opened_time=now)


def _message(
    event: Literal["opened", "closed"], incident: Incident, status: NodeStatus, limits: Limits, now: float
) -> AlertMessage:
    identity = f"{status.node} {limits.pool_id} {incident.kind} {incident.subject} {incident.opened_time}"
    return AlertMessage(
        event=event,
        incident_id=hex0x(sha256(identity.encode())),
        kind=incident.kind,
        subject=incident.subject,
        summary=incident.summary,
        todo=incident.todo,
        node=status.node,
        pool_id=limits.pool_id,
        opened_time=incident.opened_time,
        time=now,
    )
