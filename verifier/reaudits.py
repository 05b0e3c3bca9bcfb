"""Which re-audits were due, and which were held: anybody can recompute it, so a coordinator can't choose.

In: the checked log (what is settled, which re-audits were drawn and closed) and the chain's beacons. Out: counts for
`proofpool verifier status`, a warning for each that is due and not drawn, and faults: of those that weren't due, and of
those that are withheld. Earnings get no signature while there are any.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from protocol.chain.pool import PoolRecord
from protocol.draw import is_reaudited
from protocol.telemetry import get_logger
from verifier.chain import NUM_HEADS_ON_CHAIN
from verifier.payments import Payments

SCHEMA = """
CREATE TABLE IF NOT EXISTS reaudit_pick (
    submission_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, is_due INTEGER NOT NULL, told INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS own_validator (address TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
"""

GRACE_EPOCHS = 6
"""How many epochs after its beacon a re-audit has to be drawn, before that looks like more than a slow coordinator."""


class Beacons(Protocol):
    """What is asked of the chain."""

    def record(self) -> PoolRecord: ...

    def num_epochs(self) -> int: ...

    def epoch_beacon(self, epoch: int) -> str | None: ...


@dataclass(frozen=True)
class ReauditCounts:
    """Over all settled submissions whose beacon is known: due ones, and what became of them (in their last turn)."""

    due: int
    drawn: int
    agreed: int
    disagreed: int
    undecided: int


class Reaudits:
    """The table of what the beacons pick."""

    def __init__(self, db: sqlite3.Connection, payments: Payments) -> None:
        self._db = db
        self._payments = payments
        db.executescript(SCHEMA)

    def follow(self, chain: Beacons) -> None:
        """Ask the beacons of newly settled submissions, and say which due re-audits are withheld."""
        rows = self._db.execute(
            "SELECT submission_id, epoch FROM settled WHERE epoch >= ?"
            " AND submission_id NOT IN (SELECT submission_id FROM reaudit_pick)",
            (chain.num_epochs() - NUM_HEADS_ON_CHAIN,),
        ).fetchall()
        share_bps = chain.record().reaudit_bps if rows else 0
        beacons = {epoch: chain.epoch_beacon(epoch) for epoch in {epoch for _, epoch in rows}}
        picks = [
            (submission_id, epoch, is_reaudited(beacon, submission_id, share_bps))
            for submission_id, epoch in rows
            if (beacon := beacons[epoch]) is not None
        ]
        self._db.executemany("INSERT INTO reaudit_pick (submission_id, epoch, is_due) VALUES (?, ?, ?)", picks)
        for submission_id, _ in self._overdue(chain.num_epochs(), untold=True):
            self._db.execute("UPDATE reaudit_pick SET told = 1 WHERE submission_id = ?", (submission_id,))
            get_logger().warning("reaudit.withheld", submission_id=submission_id)

    def withheld(self, chain: Beacons, epoch: int) -> list[str]:
        """Faults: submissions settled up to `epoch` whose re-audit is due and hasn't been drawn in good time.

        By the beacons as the chain has them now: after a reorg they may ask for others. What it has forgotten is passed
        over, and so is what has been drawn by now.
        """
        num_epochs = chain.num_epochs()
        rows = [row for row in self._overdue(num_epochs) if num_epochs - NUM_HEADS_ON_CHAIN <= row[1] <= epoch]
        share_bps = chain.record().reaudit_bps if rows else 0
        return [
            f"the re-audit of {submission_id}, settled in epoch {settled_epoch}, isn't drawn"
            for submission_id, settled_epoch in rows
            if (beacon := chain.epoch_beacon(settled_epoch)) and is_reaudited(beacon, submission_id, share_bps)
        ]

    def counts(self) -> ReauditCounts:
        rows = self._db.execute("SELECT submission_id, state FROM reaudit_turn ORDER BY submission_id, turn").fetchall()
        states = Counter(dict(rows).values())
        (due,) = self._db.execute("SELECT COUNT(*) FROM reaudit_pick WHERE is_due").fetchone()
        return ReauditCounts(due, states.total(), states["agreed"], states["disagreed"], states["undecided"])

    def remember_validator(self, address: str) -> None:
        """Whose store this is, so that a status can tell what colleagues say of its stamps."""
        self._db.execute("INSERT OR IGNORE INTO own_validator VALUES (?)", (address,))

    def num_disputed_stamps(self) -> int:
        """Of this store's validator."""
        own = self._db.execute("SELECT address FROM own_validator").fetchall()
        return sum(self._payments.opinions.num_disputed_stamps(address) for (address,) in own)

    def _overdue(self, num_epochs: int, *, untold: bool = False) -> list[tuple[str, int]]:
        """Submissions that should have been drawn again by now, and the epochs that anchor their settling."""
        rows = self._db.execute(
            "SELECT submission_id, epoch FROM reaudit_pick WHERE is_due AND epoch + ? < ? AND NOT (told AND ?)"
            " AND submission_id NOT IN (SELECT submission_id FROM reaudit_turn)",
            (GRACE_EPOCHS, num_epochs, untold),
        )
        return [(submission_id, epoch) for submission_id, epoch in rows.fetchall()]


def undue_reaudits(payments: Payments, chain: Beacons, after_epoch: int, epoch: int) -> list[str]:
    """Faults: re-audits that ended after `after_epoch`, up to `epoch`, and that no beacon asked for.

    Beacons that the chain has forgotten are passed over.
    """
    share_bps, oldest_epoch = chain.record().reaudit_bps, chain.num_epochs() - NUM_HEADS_ON_CHAIN
    faults = []
    for submission_id, asked_epoch in payments.closed_reaudits(after_epoch, epoch):
        beacon = chain.epoch_beacon(asked_epoch) if asked_epoch >= oldest_epoch else None
        if asked_epoch >= oldest_epoch and not (beacon and is_reaudited(beacon, submission_id, share_bps)):
            faults.append(f"the re-audit of {submission_id} wasn't due")
    return faults
