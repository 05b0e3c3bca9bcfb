"""Commit first, reveal afterwards: one Merkle root per (open epoch, seat, part) over salted verdict digests.

In: kept verdicts. Out: signed `VerdictCommitment`s, and, once the epoch that logged one is anchored on chain,
the reveals of its verdicts. A commitment is durable before it is sent, and is sent again until it is answered:
a restart sends the same root. One that came too late for its epoch is dissolved, and the same verdicts, with
the same salts, go into the next.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from protocol.api import VerdictReveal
from protocol.merkle.commitment import CommitmentTree, salted_digest
from protocol.signing import Signer, SigningDomain
from protocol.wire import Signed, VerdictCommitment
from verifier.store import transaction
from verifier.verdicts import COLUMNS, KeptVerdict

SCHEMA = """
CREATE TABLE IF NOT EXISTS commitment (
    epoch INTEGER NOT NULL, seat INTEGER NOT NULL, part INTEGER NOT NULL,
    root TEXT NOT NULL, signed_commitment TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (epoch, seat, part)
) STRICT;
"""


@dataclass(frozen=True)
class CommitmentKey:
    """Which commitment: the epoch that was open, the seat, and a count within both."""

    epoch: int
    seat: int
    part: int


class Commitments:
    """The table of commitments over the table of verdicts."""

    def __init__(self, db: sqlite3.Connection, signer: Signer, domain: SigningDomain) -> None:
        self._db = db
        self._signer = signer
        self._domain = domain
        db.executescript(SCHEMA)

    def prepare(self, pool_id: int, epoch: int) -> None:
        """Put every verdict that isn't committed yet under a new root of the open epoch, one a seat."""
        with transaction(self._db):
            seats = self._db.execute("SELECT DISTINCT seat FROM verdict WHERE commitment_epoch IS NULL").fetchall()
            for (seat,) in seats:
                self._prepare_seat(pool_id, CommitmentKey(epoch, seat, self._next_part(epoch, seat)))

    def _prepare_seat(self, pool_id: int, key: CommitmentKey) -> None:
        rows = self._db.execute(
            f"SELECT {COLUMNS}, MIN(round) FROM verdict"
            " WHERE seat = ? AND commitment_epoch IS NULL GROUP BY submission_id",
            (key.seat,),
        ).fetchall()
        verdicts = [KeptVerdict.of_row(row[:3]) for row in rows]
        message = VerdictCommitment(
            pool_id=pool_id, epoch=key.epoch, seat=key.seat, part=key.part, root=self._tree(verdicts).root
        )
        signed = Signed[VerdictCommitment].by(self._signer, message, self._domain)
        self._db.execute(
            "INSERT INTO commitment (epoch, seat, part, root, signed_commitment) VALUES (?, ?, ?, ?, ?)",
            (key.epoch, key.seat, key.part, message.root, signed.model_dump_json()),
        )
        self._db.executemany(
            "UPDATE verdict SET commitment_epoch = ?, commitment_part = ?"
            " WHERE submission_id = ? AND round = ? AND seat = ?",
            [(key.epoch, key.part, v.message.submission_id, v.message.round, key.seat) for v in verdicts],
        )

    def unsent(self) -> list[Signed[VerdictCommitment]]:
        """What the coordinator hasn't confirmed, in order."""
        rows = self._db.execute("SELECT signed_commitment FROM commitment WHERE NOT sent ORDER BY epoch, seat, part")
        return [Signed[VerdictCommitment].model_validate_json(row[0]) for row in rows.fetchall()]

    def mark_sent(self, commitment: VerdictCommitment) -> None:
        self._db.execute("UPDATE commitment SET sent = 1 WHERE epoch = ? AND seat = ? AND part = ?", _key(commitment))

    def dissolve(self, commitment: VerdictCommitment) -> None:
        """It came too late for its epoch: its verdicts are free for the next."""
        with transaction(self._db):
            self._db.execute("DELETE FROM commitment WHERE epoch = ? AND seat = ? AND part = ?", _key(commitment))
            self._db.execute(
                "UPDATE verdict SET commitment_epoch = NULL, commitment_part = NULL"
                " WHERE commitment_epoch = ? AND seat = ? AND commitment_part = ? AND NOT revealed",
                _key(commitment),
            )

    def due_reveals(self, num_anchored_epochs: int) -> list[VerdictReveal]:
        """Reveals of sent commitments whose epoch is anchored, and that the coordinator hasn't taken yet."""
        keys = self._db.execute(
            "SELECT DISTINCT epoch, c.seat, part FROM commitment c JOIN verdict v"
            " ON v.commitment_epoch = epoch AND v.seat = c.seat AND commitment_part = part"
            " WHERE sent AND NOT revealed AND epoch < ? ORDER BY epoch, c.seat, part",
            (num_anchored_epochs,),
        ).fetchall()
        return [reveal for key in keys for reveal in self._reveals(CommitmentKey(*key))]

    def mark_revealed(self, reveal: VerdictReveal) -> None:
        message = reveal.verdict.message
        self._db.execute(
            "UPDATE verdict SET revealed = 1 WHERE submission_id = ? AND round = ? AND seat = ?",
            (message.submission_id, message.round, message.seat),
        )

    def _reveals(self, key: CommitmentKey) -> list[VerdictReveal]:
        rows = self._db.execute(
            f"SELECT {COLUMNS}, revealed FROM verdict WHERE commitment_epoch = ? AND seat = ? AND commitment_part = ?",
            (key.epoch, key.seat, key.part),
        ).fetchall()
        verdicts = [KeptVerdict.of_row(row[:3]) for row in rows]
        tree = self._tree(verdicts)
        return [
            VerdictReveal(
                verdict=verdict.signed,
                evidence=verdict.evidence,
                salt=verdict.salt,
                commitment_epoch=key.epoch,
                part=key.part,
                path=tree.proof(verdict.message.submission_id),
            )
            for verdict, row in zip(verdicts, rows, strict=True)
            if not row[3]
        ]

    def _tree(self, verdicts: list[KeptVerdict]) -> CommitmentTree:
        return CommitmentTree(
            {v.message.submission_id: salted_digest(v.message.id(self._domain), v.salt) for v in verdicts}
        )

    def _next_part(self, epoch: int, seat: int) -> int:
        row = self._db.execute(
            "SELECT MAX(part) FROM commitment WHERE epoch = ? AND seat = ?", (epoch, seat)
        ).fetchone()
        return 0 if row[0] is None else row[0] + 1


def _key(commitment: VerdictCommitment) -> tuple[int, int, int]:
    return commitment.epoch, commitment.seat, commitment.part
