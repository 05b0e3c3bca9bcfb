"""Who judged what, which way, and whose work stamps are disputed: as the checked log tells it.

In: `verdict.revealed` events, in order. Out: each round's judges of a submission, and votes on their stamps. A
validator's first verdict of a round counts, and its first review of a stamp.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Strict

from protocol.draw import REAUDIT_ROUND
from protocol.reasons import Outcome
from protocol.stamp import is_disputed
from protocol.wire import Address, UInt8, UInt32

SCHEMA = """
CREATE TABLE IF NOT EXISTS opinion (
    submission_id TEXT NOT NULL, round INTEGER NOT NULL, validator TEXT NOT NULL, accepts INTEGER NOT NULL,
    in_time INTEGER NOT NULL, PRIMARY KEY (submission_id, round, validator)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stamp_vote (
    submission_id TEXT NOT NULL, round INTEGER NOT NULL, validator TEXT NOT NULL, reviewer TEXT NOT NULL,
    agrees INTEGER NOT NULL, PRIMARY KEY (submission_id, round, validator, reviewer)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS stamp_vote_validator ON stamp_vote (validator);
"""
ROUNDS = (0, REAUDIT_ROUND)
"""Others aren't looked at."""


class _Revealed(BaseModel):
    """What is read of the event's data; there may be more. A coordinator may have logged anything."""

    model_config = ConfigDict(frozen=True, strict=True)
    round: UInt32 = 0
    validator: Address
    outcome: UInt8
    in_time: bool
    stamp_reviews: list[Annotated[tuple[Address, UInt32, bool], Strict(False)]] = []


@dataclass(frozen=True)
class Judge:
    """A validator that revealed a verdict."""

    validator: str
    accepts: bool
    in_time: bool


class Opinions:
    """The tables of revealed verdicts and of votes on stamps."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.executescript(SCHEMA)

    def note(self, submission_id: str, data: object) -> None:
        """Take in one `verdict.revealed`. Raises ValidationError where it can't be read."""
        revealed = _Revealed.model_validate(data)
        if revealed.round not in ROUNDS:
            return
        accepts = revealed.outcome == Outcome.ACCEPT
        values = (submission_id, revealed.round, revealed.validator, accepts, revealed.in_time)
        self._db.execute("INSERT OR IGNORE INTO opinion VALUES (?, ?, ?, ?, ?)", values)
        votes = [(submission_id, number, v, revealed.validator, agrees) for v, number, agrees in revealed.stamp_reviews]
        self._db.executemany("INSERT OR IGNORE INTO stamp_vote VALUES (?, ?, ?, ?, ?)", votes)

    def judges(self, submission_id: str, round_number: int) -> list[Judge]:
        """Whoever has revealed a verdict in this round so far."""
        query = "SELECT validator, accepts, in_time FROM opinion WHERE submission_id = ? AND round = ?"
        rows = self._db.execute(query, (submission_id, round_number))
        return [Judge(validator, bool(accepts), bool(in_time)) for validator, accepts, in_time in rows]

    def revealed(self, submission_id: str) -> list[tuple[int, str]]:
        """Rounds and validators of every verdict that is revealed so far."""
        return [(number, judge.validator) for number in ROUNDS for judge in self.judges(submission_id, number)]

    def has_judged(self, submission_id: str, validator: str) -> bool:
        """In round 0."""
        return any(judge.validator == validator for judge in self.judges(submission_id, 0))

    def disputed(self, submission_id: str, round_number: int) -> set[str]:
        """Validators whose stamp of this round more seats dispute than confirm so far."""
        query = (
            "SELECT validator, agrees FROM stamp_vote WHERE submission_id = ? AND round = ? AND validator <> reviewer"
        )
        votes: dict[str, Counter[bool]] = {}
        for validator, agrees in self._db.execute(query, (submission_id, round_number)):
            votes.setdefault(validator, Counter())[bool(agrees)] += 1
        return {validator for validator, count in votes.items() if is_disputed(count[True], count[False])}

    def num_disputed_stamps(self, validator: str) -> int:
        """How many of a validator's stamps more seats dispute than confirm."""
        query = "SELECT DISTINCT submission_id, round FROM stamp_vote WHERE validator = ? AND NOT agrees"
        stamps = self._db.execute(query, (validator,)).fetchall()
        return sum(validator in self.disputed(*stamp) for stamp in stamps)
