"""What the log's payments are for: each must follow from a submission that was received and judged.

In: the events of the checked log, in order. Out: what each account earned, and faults: payments that nothing in
the log earns. A statement over a fault gets no signature (`verifier/attest.py`), whatever it adds up to.

    submission.received    its units, its provider
    verdict.revealed       who judged it, which way, in time or not
    submission.accepted    pays the provider its units × a price of the pool, once
    submission.accepted    and .rejected pay validators who agreed in time their units × a verify price, once each
    reaudit.agreed         and .disagreed pay validators of round 1 in the same way, once

A validator whose work stamp more seats dispute than confirm, up to there, isn't paid. Whether a re-audit was due is
asked of the chain (`verifier/reaudits.py`).
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints, ValidationError

from protocol.api import LogEntry
from protocol.canonical import MAX_SAFE_INTEGER
from protocol.wire import Address, UInt64
from verifier.opinions import Opinions

SCHEMA = """
CREATE TABLE IF NOT EXISTS payment (
    account TEXT NOT NULL, epoch INTEGER NOT NULL, amount_wei TEXT NOT NULL, PRIMARY KEY (account, epoch)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settled (
    submission_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, accepted INTEGER NOT NULL, num_agreeing INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reaudit_turn (
    submission_id TEXT NOT NULL, turn INTEGER NOT NULL, asked_epoch INTEGER NOT NULL,
    closed_epoch INTEGER, state TEXT, is_excused INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (submission_id, turn)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS paid_again (
    submission_id TEXT NOT NULL, validator TEXT NOT NULL, PRIMARY KEY (submission_id, validator)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS paid_price (
    earner TEXT NOT NULL, price_wei TEXT NOT NULL, received_epoch INTEGER NOT NULL, epoch INTEGER NOT NULL,
    PRIMARY KEY (earner, price_wei, received_epoch, epoch)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS payment_fault (
    log_index INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, detail TEXT NOT NULL
) STRICT;
"""

SETTLING = {"submission.accepted": True, "submission.rejected": False}
REAUDITS = {"reaudit.agreed": True, "reaudit.disagreed": False, "reaudit.undecided": None}
"""Whether each says that round 0's decision stands."""
WeiText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,39}$")]
PROVIDER, VALIDATOR = "provider", "validator"


class _EventData(BaseModel):
    """What is read of an event's data; there may be more. A coordinator may have logged anything."""

    model_config = ConfigDict(frozen=True, strict=True)


class _Paying(_EventData):
    payments: list[Annotated[tuple[Address, WeiText], Strict(False)]] = []


class _Received(_EventData):
    num_units: Annotated[int, Field(gt=0, le=MAX_SAFE_INTEGER)]
    provider: Address


class _Settling(_Paying):
    num_units: UInt64


class _Reaudit(_Settling):
    accepted: bool | None


_SHAPES: Mapping[str, type[_Paying]] = dict.fromkeys(SETTLING, _Settling) | dict.fromkeys(REAUDITS, _Reaudit)


@dataclass(frozen=True)
class Settling:
    """Round 0's decision: the epoch that anchors it, and which way it went."""

    epoch: int
    accepted: bool


@dataclass(frozen=True)
class PaymentFault:
    """A log entry that pays what nothing earns."""

    log_index: int
    epoch: int
    detail: str


@dataclass(frozen=True)
class UnitPrice:
    """What somebody was paid for a unit of what came in during `received_epoch`: `earner` is provider or validator."""

    earner: str
    price_wei: int
    received_epoch: int


class Payments:
    """The tables of payments and of what they are for."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.opinions = Opinions(db)
        db.executescript(SCHEMA)

    def note(self, entry: LogEntry, epoch: int) -> None:
        """Take in one event of `epoch`. What can't be read is a fault if it may be about money."""
        kind = str(entry.event.get("type"))
        try:
            fault = self._note(kind, entry.subject, entry.event.get("data"), epoch)
        except ValidationError as error:
            fault = f"a {kind[:40]} can't be read: {error.errors()[0]['loc']}"
        if fault is not None:
            self._db.execute("INSERT INTO payment_fault VALUES (?, ?, ?)", (entry.index, epoch, fault))

    def _note(self, kind: str, subject: str, data: object, epoch: int) -> str | None:
        if kind == "verdict.revealed":
            self.opinions.note(subject, data)
        if kind == "reaudit.drawn":
            self._begin(subject)
        if kind == "chain.reorged":
            # Beacons that picked and drew may be gone, and with them the way to check what they did.
            self._db.execute("UPDATE reaudit_turn SET is_excused = 1")
        paying = _SHAPES.get(kind, _Paying).model_validate(data)
        payments = {account: int(amount) for account, amount in paying.payments}
        for account, amount in paying.payments:
            self._add(account, epoch, int(amount))
        if len(payments) < len(paying.payments):
            return "it pays an account twice"
        if isinstance(paying, _Reaudit):
            return self._close(subject, kind, paying, epoch, payments)
        if isinstance(paying, _Settling):
            return self._settle(subject, SETTLING[kind], paying.num_units, epoch, payments)
        return f"a {kind[:40]} pays" if payments else None

    def earnings(self, epoch: int) -> dict[str, int]:
        """Gross cumulative payments by account, up to and including `epoch`."""
        totals: dict[str, int] = {}
        for account, amount in self._db.execute("SELECT account, amount_wei FROM payment WHERE epoch <= ?", (epoch,)):
            totals[account] = totals.get(account, 0) + int(amount)
        return totals

    def faults(self, epoch: int) -> list[PaymentFault]:
        """Payments up to `epoch` that nothing earns: the oldest ten."""
        rows = self._db.execute(
            "SELECT log_index, epoch, detail FROM payment_fault WHERE epoch <= ? ORDER BY log_index LIMIT 10", (epoch,)
        )
        return [PaymentFault(*row) for row in rows.fetchall()]

    def faults_after(self, log_index: int) -> list[PaymentFault]:
        """The next ones past a leaf, some at once, oldest first."""
        rows = self._db.execute(
            "SELECT log_index, epoch, detail FROM payment_fault WHERE log_index > ? ORDER BY log_index LIMIT 100",
            (log_index,),
        )
        return [PaymentFault(*row) for row in rows.fetchall()]

    def unit_prices(self, after_epoch: int, epoch: int) -> set[UnitPrice]:
        """Every price that was paid after `after_epoch`, up to `epoch`."""
        query = "SELECT earner, price_wei, received_epoch FROM paid_price WHERE epoch > ? AND epoch <= ?"
        rows = self._db.execute(query, (after_epoch, epoch))
        return {UnitPrice(earner, int(price), received_epoch) for earner, price, received_epoch in rows.fetchall()}

    def closed_reaudits(self, after_epoch: int, epoch: int) -> list[tuple[str, int]]:
        """Re-audits that ended after `after_epoch`, up to `epoch`: submission, and the epoch whose beacon asked for it.

        Those that a reorg came after are left out.
        """
        query = (
            "SELECT submission_id, asked_epoch FROM reaudit_turn WHERE closed_epoch > ? AND closed_epoch <= ?"
            " AND NOT is_excused ORDER BY submission_id, turn"
        )
        return [(submission_id, asked) for submission_id, asked in self._db.execute(query, (after_epoch, epoch))]

    def least_quorum(self, epoch: int) -> int | None:
        """How many verdicts agreed on the least agreed of the accepted submissions; None where there is none."""
        row = self._db.execute(
            "SELECT MIN(num_agreeing) FROM settled WHERE accepted AND epoch <= ?", (epoch,)
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def settling(self, submission_id: str) -> Settling | None:
        """None while the log hasn't settled it."""
        row = self._db.execute(
            "SELECT epoch, accepted FROM settled WHERE submission_id = ?", (submission_id,)
        ).fetchone()
        return None if row is None else Settling(row[0], bool(row[1]))

    def _settle(
        self, submission_id: str, accepted: bool, num_units: int, epoch: int, payments: Mapping[str, int]
    ) -> str | None:
        """Note that a submission is settled; what is wrong with what that pays, if anything is."""
        if self._db.execute("SELECT 1 FROM settled WHERE submission_id = ?", (submission_id,)).fetchone():
            return "it is settled a second time" if payments else None
        judges = self.opinions.judges(submission_id, 0)
        agreeing = [judge for judge in judges if judge.accepts is accepted]
        self._db.execute("INSERT INTO settled VALUES (?, ?, ?, ?)", (submission_id, epoch, accepted, len(agreeing)))
        if accepted and 2 * len(agreeing) <= len(judges):
            return "it is accepted against its verdicts"
        received = self._received(submission_id)
        if received is None:
            return "it was never received" if payments else None
        if num_units != received.num_units:
            return f"{num_units} units are settled, {received.num_units} were received"
        earning = {judge.validator for judge in agreeing if judge.in_time} - self.opinions.disputed(submission_id, 0)
        paid = {PROVIDER: {received.provider} if accepted else set(), VALIDATOR: earning}
        return next(filter(None, self._faults_of(submission_id, paid, payments, num_units, epoch)), None)

    def _begin(self, submission_id: str) -> None:
        """One more turn of a re-audit, asked for by the epoch that anchors the settling or the end of the last turn."""
        query = "SELECT COUNT(*), MAX(closed_epoch), COUNT(*) - COUNT(state) FROM reaudit_turn WHERE submission_id = ?"
        num_turns, closed_epoch, num_open = self._db.execute(query, (submission_id,)).fetchone()
        settling = self.settling(submission_id)
        asked_epoch = closed_epoch if num_turns else settling and settling.epoch
        if not num_open and asked_epoch is not None:
            self._db.execute(
                "INSERT INTO reaudit_turn (submission_id, turn, asked_epoch) VALUES (?, ?, ?)",
                (submission_id, num_turns, asked_epoch),
            )

    def _paid_again(self, submission_id: str) -> set[str]:
        """Validators that round 1 has paid for this submission."""
        query = "SELECT validator FROM paid_again WHERE submission_id = ?"
        return {row[0] for row in self._db.execute(query, (submission_id,))}

    def _close(
        self, submission_id: str, kind: str, closing: _Reaudit, epoch: int, payments: Mapping[str, int]
    ) -> str | None:
        """Note that a re-audit is over; what is wrong with what that pays, if anything is."""
        closed = self._db.execute(
            "UPDATE reaudit_turn SET closed_epoch = ?, state = ? WHERE submission_id = ? AND state IS NULL",
            (epoch, kind.rpartition(".")[2], submission_id),
        ).rowcount
        settling, received = self.settling(submission_id), self._received(submission_id)
        if not closed or settling is None or received is None:
            return "a re-audit ends that never began" if payments else None
        stands = None if closing.accepted is None else closing.accepted is settling.accepted
        if stands is not REAUDITS[kind]:
            return f"a {kind} says that it was {'accepted' if closing.accepted else 'rejected'}"
        again = self.opinions.judges(submission_id, 1)
        sides = Counter(judge.accepts for judge in (*self.opinions.judges(submission_id, 0), *again))
        if closing.accepted is not None and sides[closing.accepted] <= sides[not closing.accepted]:
            return f"a {kind} goes against its verdicts"
        if closing.num_units != received.num_units:
            return f"{closing.num_units} units are judged again, {received.num_units} were received"
        earning = {judge.validator for judge in again if judge.in_time and judge.accepts is closing.accepted}
        paid_before = self._paid_again(submission_id)
        self._db.executemany("INSERT OR IGNORE INTO paid_again VALUES (?, ?)", [(submission_id, v) for v in payments])
        paid = {PROVIDER: set[str](), VALIDATOR: earning - self.opinions.disputed(submission_id, 1) - paid_before}
        faults = self._faults_of(submission_id, paid, payments, received.num_units, epoch)
        return next(filter(None, faults), None)

    def _faults_of(
        self,
        submission_id: str,
        paid: Mapping[str, set[str]],
        payments: Mapping[str, int],
        num_units: int,
        epoch: int,
    ) -> Iterator[str | None]:
        for account, amount in payments.items():
            earner = next((earner for earner in (PROVIDER, VALIDATOR) if account in paid[earner]), None)
            price_wei, rest = divmod(amount, num_units)
            if earner is None or rest:
                yield f"{account} is paid {amount} for {num_units} units as {earner or 'nobody'}"
            else:
                self._db.execute(
                    "INSERT OR IGNORE INTO paid_price SELECT ?, ?, epoch, ? FROM received WHERE submission_id = ?",
                    (earner, str(price_wei), epoch, submission_id),
                )

    def _received(self, submission_id: str) -> _Received | None:
        """The data of the event that received it."""
        row = self._db.execute("SELECT document FROM received WHERE submission_id = ?", (submission_id,)).fetchone()
        return None if row is None else _Received.model_validate(json.loads(row[0]).get("data"))

    def _add(self, account: str, epoch: int, amount_wei: int) -> None:
        row = self._db.execute(
            "SELECT amount_wei FROM payment WHERE account = ? AND epoch = ?", (account, epoch)
        ).fetchone()
        total = amount_wei + (int(row[0]) if row else 0)
        self._db.execute("INSERT OR REPLACE INTO payment VALUES (?, ?, ?)", (account, epoch, str(total)))
