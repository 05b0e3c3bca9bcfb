"""What an auditor who watches a log wants to be told, kept until it has been.

In: events of the checked log, in order. Out: rows of the table `alert`, written in the transaction that takes the
event's epoch over, so that no crash loses one. A fault is something that no honest log has; the rest is news.

    unreadable               a leaf that is no event
    back_dated, post_dated   an event's time is before that of the one before it, or after its epoch was on chain
    unearned                 a payment that nothing in the log earns
    verifiers                seats contradict each other, about an outcome or about a work stamp
    case                     the Court, the jury or a broken promise, as the log copies it
    copy                     a copy that isn't what the chain has (`claims.py`)
    replay                   a verdict that this machine's own judgement contradicts; or there is nothing to judge by
    reorg                    the chain dropped blocks, says the coordinator; a fault where it has them still
    node                     whatever happens to a node that was named, but for leases and draws
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from protocol.api import LogEntry
from protocol.chain.pool import LogHead
from protocol.errors import VerificationFailed
from protocol.events import REASONS_ON_CHAIN, REORGED, LogEvent
from protocol.plain import plain

SCHEMA = """
CREATE TABLE IF NOT EXISTS alert (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, is_fault INTEGER NOT NULL, epoch INTEGER, log_index INTEGER,
    subject TEXT, detail TEXT NOT NULL, is_told INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS alert_place ON alert (log_index, kind);
CREATE TABLE IF NOT EXISTS log_time (id INTEGER PRIMARY KEY CHECK (id = 1), time INTEGER NOT NULL) STRICT;
"""

CONTRADICTIONS = {
    "submission.challenged": "a seat of round 1 contradicts what was settled",
    "submission.disputed": "no seat is left to judge",
    "reaudit.disagreed": "both rounds together contradict what was settled",
    "stamp.disputed": "a seat disputes another's work stamp",
}
CASES = (
    *("Accused", "Appealed", "Challenged", "Implicated", "CaseUpheld", "CaseOverturned", "CaseLapsed", "Slashed"),
    *("EarningsDisputed", "EarningsRevoked", "DisputeUpheld", "DisputeOverturned", "DisputeLapsed"),
    *("InclusionDemanded", "PromiseBroken", "IntakeForced", "KeyChanged", "Paused", "PoolClosing"),
)
ROUTINE = ("task.leased", "task.renewed", "draw.opened")
SHOWN = ("reason", "validator", "seat", "by_seat", "round", "largest_difference", "node", "provider", "role", "amount")
MAX_SHOWN_CHARACTERS, MAX_DETAIL_CHARACTERS = 100, 1000
NUM_AT_ONCE = 100
"""Untold alerts in memory."""


@dataclass(frozen=True)
class Alert:
    """`log_index` and what goes with it are None where the alert is about the log itself."""

    number: int
    kind: str
    is_fault: bool
    epoch: int | None
    log_index: int | None
    subject: str | None
    detail: str

    def as_json(self) -> dict[str, Any]:
        return {"schema_version": 1, "event": "alert", **asdict(self)}

    def line(self) -> str:
        where = "" if self.log_index is None else f"  leaf {self.log_index}, epoch {self.epoch}"
        about = f"  {self.subject}" if self.subject and int(self.subject, 16) else ""
        return plain(f"{'✗' if self.is_fault else '!'} {self.kind:<11} {self.detail}{where}{about}")


class Alerts:
    """The table, and the rules of what comes into it. `nodes`: addresses whose fate is wanted."""

    def __init__(self, db: sqlite3.Connection, nodes: Collection[str] = ()) -> None:
        self._db = db
        self._nodes = frozenset(nodes)
        db.executescript(SCHEMA)

    def observe(self, entry: LogEntry, head: LogHead) -> None:
        """Take in one event of an epoch that is being checked."""
        self._check_form(entry, head)
        self._check_time(entry, head)
        kind, values = str(entry.event.get("type")), _object(entry.event.get("data"))
        arguments = _object(values.get("arguments"))
        if kind in CONTRADICTIONS:
            self._note("verifiers", entry, head, _worded(CONTRADICTIONS[kind], values))
        elif kind == REORGED:
            self._note("reorg", entry, head, f"blocks from {values.get('fork_block')} on")
        elif kind.removeprefix("chain.") in CASES:
            self._note("case", entry, head, _worded(kind, _with_code(arguments)))
        said = _with_code(arguments) if kind.startswith("chain.") else values
        if kind not in ROUTINE and str(said.get("node")) in self._nodes:
            self._note("node", entry, head, _worded(kind, said))

    def note_fault(
        self,
        kind: str,
        detail: str,
        epoch: int | None = None,
        log_index: int | None = None,
        subject: str | None = None,
    ) -> None:
        """Something that no honest log has. The same isn't noted twice."""
        self._insert(kind, True, epoch, log_index, subject, detail)

    def note_news(self, kind: str, subject: str, detail: str) -> None:
        self._insert(kind, False, None, None, subject, detail)

    def untold(self) -> list[Alert]:
        """The oldest, first: ask again once these are told."""
        rows = self._db.execute(
            "SELECT number, kind, is_fault, epoch, log_index, subject, detail FROM alert "
            "WHERE NOT is_told ORDER BY number LIMIT ?",
            (NUM_AT_ONCE,),
        )
        return [Alert(number, kind, bool(is_fault), *rest) for number, kind, is_fault, *rest in rows]

    def mark_told(self, alert: Alert) -> None:
        self._db.execute("UPDATE alert SET is_told = 1 WHERE number = ?", (alert.number,))

    def num_faults(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM alert WHERE is_fault").fetchone()[0])

    def _check_form(self, entry: LogEntry, head: LogHead) -> None:
        try:
            LogEvent.of(entry.event)
        except VerificationFailed as fault:
            self._insert("unreadable", True, head.epoch, entry.index, entry.subject, str(fault))

    def _check_time(self, entry: LogEntry, head: LogHead) -> None:
        """Times only rise, but after the chain dropped blocks, and an epoch is on chain after all that it holds."""
        time = entry.event.get("time")
        if not isinstance(time, int):
            self._insert("back_dated", True, head.epoch, entry.index, entry.subject, "it has no time")
            return
        row = self._db.execute("SELECT time FROM log_time").fetchone()
        if row is not None and time < row[0]:
            detail = f"at {time}, after an event at {row[0]}"
            self._insert("back_dated", True, head.epoch, entry.index, entry.subject, detail)
        if head.time and time > head.time:
            detail = f"at {time}, in an epoch that was on chain at {head.time}"
            self._insert("post_dated", True, head.epoch, entry.index, entry.subject, detail)
        # After blocks were dropped it is the time of the last one that is left, which `claims.py` asks of the chain.
        after = 0 if entry.event.get("type") == REORGED else time
        self._db.execute("INSERT OR REPLACE INTO log_time VALUES (1, ?)", (after,))

    def _note(self, kind: str, entry: LogEntry, head: LogHead, detail: str) -> None:
        self._insert(kind, False, head.epoch, entry.index, entry.subject, detail)

    def _insert(
        self, kind: str, is_fault: bool, epoch: int | None, log_index: int | None, subject: str | None, detail: str
    ) -> None:
        detail = detail[:MAX_DETAIL_CHARACTERS]
        known = "SELECT 1 FROM alert WHERE kind = ? AND log_index IS ? AND subject IS ? AND detail = ?"
        if self._db.execute(known, (kind, log_index, subject, detail)).fetchone() is None:
            row = (kind, int(is_fault), epoch, log_index, subject, detail)
            self._db.execute(
                "INSERT INTO alert (kind, is_fault, epoch, log_index, subject, detail) VALUES (?, ?, ?, ?, ?, ?)", row
            )


def _object(value: object) -> Mapping[str, Any]:
    """Of what a coordinator logged, which may be anything."""
    return value if isinstance(value, dict) else {}


def _with_code(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """A contract's reason by its code, as the log's other events say it."""
    number = str(arguments.get("reason"))
    return {**arguments, "reason": REASONS_ON_CHAIN[number]} if number in REASONS_ON_CHAIN else arguments


def _worded(what: str, values: Mapping[str, Any]) -> str:
    """What happened, and those values that say who and why."""
    shown = [f"{name} {str(values[name])[:MAX_SHOWN_CHARACTERS]}" for name in SHOWN if values.get(name) is not None]
    return ", ".join([what[:MAX_SHOWN_CHARACTERS], *shown])
