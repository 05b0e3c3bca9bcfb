"""Verdicts that this verifier has given, kept before anybody hears of them.

In: a judged draw. Out: the same verdict for ever: a draw that is judged again (after a crash, by a second
process) gets what was kept first, so no two verdicts of one draw ever leave this machine.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from protocol.reasons import Outcome
from protocol.wire import Evidence, Signed, Verdict
from verifier.store import transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS verdict (
    submission_id TEXT NOT NULL, round INTEGER NOT NULL, seat INTEGER NOT NULL,
    outcome INTEGER NOT NULL, signed_verdict TEXT NOT NULL, evidence TEXT NOT NULL, salt TEXT NOT NULL,
    commitment_epoch INTEGER, commitment_part INTEGER, revealed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (submission_id, round, seat)
) STRICT;
CREATE INDEX IF NOT EXISTS verdict_uncommitted ON verdict (seat) WHERE commitment_epoch IS NULL;
CREATE TABLE IF NOT EXISTS completions (
    node TEXT NOT NULL, completions_hash TEXT NOT NULL, submission_id TEXT NOT NULL,
    PRIMARY KEY (node, completions_hash)
) STRICT, WITHOUT ROWID;
"""

COLUMNS = "signed_verdict, evidence, salt"


@dataclass(frozen=True)
class KeptVerdict:
    """A verdict, what is behind it, and the salt that hides it until it is revealed."""

    signed: Signed[Verdict]
    evidence: Evidence
    salt: str

    @property
    def message(self) -> Verdict:
        return self.signed.message

    @classmethod
    def of_row(cls, row: tuple[str, str, str]) -> KeptVerdict:
        verdict, evidence, salt = row
        return cls(Signed[Verdict].model_validate_json(verdict), Evidence.model_validate_json(evidence), salt)


class Verdicts:
    """The table of verdicts, and the completions that were accepted."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.executescript(SCHEMA)

    def find(self, submission_id: str, round_number: int, seat: int) -> KeptVerdict | None:
        row = self._db.execute(
            f"SELECT {COLUMNS} FROM verdict WHERE submission_id = ? AND round = ? AND seat = ?",
            (submission_id, round_number, seat),
        ).fetchone()
        return None if row is None else KeptVerdict.of_row(row)

    def keep(self, verdict: KeptVerdict, node: str, completions_hash: str | None) -> KeptVerdict:
        """Make it durable; where this draw has a verdict already, that one stands and is returned."""
        message = verdict.message
        with transaction(self._db):
            self._db.execute(
                "INSERT OR IGNORE INTO verdict (submission_id, round, seat, outcome, signed_verdict, evidence, salt)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(message.submission_id, message.round, message.seat, message.outcome),
                    *(verdict.signed.model_dump_json(), verdict.evidence.model_dump_json(), verdict.salt),
                ),
            )
            if completions_hash is not None and message.outcome == Outcome.ACCEPT:
                self._db.execute(
                    "INSERT OR IGNORE INTO completions VALUES (?, ?, ?)",
                    (node, completions_hash, message.submission_id),
                )
        kept = self.find(message.submission_id, message.round, message.seat)
        return kept or verdict

    def find_twin(self, node: str, completions_hash: str, submission_id: str) -> str | None:
        """Another accepted submission of this node with the same completions."""
        row = self._db.execute(
            "SELECT submission_id FROM completions WHERE node = ? AND completions_hash = ?", (node, completions_hash)
        ).fetchone()
        return None if row is None or row[0] == submission_id else str(row[0])

    @property
    def num_unrevealed(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM verdict WHERE NOT revealed").fetchone()[0])

    def count_by_outcome(self) -> dict[str, int]:
        """How many verdicts of each outcome were given."""
        rows = self._db.execute("SELECT outcome, COUNT(*) FROM verdict GROUP BY outcome").fetchall()
        return {Outcome(outcome).name.lower(): count for outcome, count in rows}
