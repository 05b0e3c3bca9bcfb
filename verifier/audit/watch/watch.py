"""`proofpool audit watch`: an auditor who remembers, and looks again.

    heads of the chain ─▶ the log's new leaves ─▶ the newest checkpoint ─▶ leaves of before, served again
                       ─▶ a share of what was settled, judged again ─▶ alerts

In: a coordinator, the chain, a folder that remembers. Out: alerts, told once each, and how far the log is checked. An
epoch is taken over, with its alerts, in one transaction once its leaves hash to the head on chain; where they don't,
nothing is, and the next turn looks again. Told is marked after telling: a crash tells twice rather than not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from protocol.api import LogEntry
from protocol.chain.pool import ChainPool, LogHead
from protocol.client import CoordinatorClient
from protocol.errors import ConfigError, NotFound, ProofpoolError, Rejected, Unreachable, VerificationFailed
from protocol.merkle.checkpoint import Checkpoint, open_checkpoint
from protocol.merkle.history import NodeAddress, root_of
from protocol.merkle.note import NoteKey
from protocol.progress import Steps, Unseen
from verifier.audit.watch.alerts import Alert, Alerts
from verifier.audit.watch.claims import ChainEvents, Claims
from verifier.audit.watch.samples import Samples
from verifier.chain import NUM_HEADS_ON_CHAIN
from verifier.history import MAX_ENTRIES, History, checked_leaf
from verifier.store import transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoint (size INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS other_checkpoint (note TEXT PRIMARY KEY) STRICT;
CREATE TABLE IF NOT EXISTS held_checkpoints (id INTEGER PRIMARY KEY CHECK (id = 1), size INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS second_look (id INTEGER PRIMARY KEY CHECK (id = 1), next_leaf INTEGER NOT NULL) STRICT;
"""
Replay = Callable[[str], Sequence[str]]
"""Judges a submission again: for each verdict that doesn't hold, whose it is and why."""
Shown = Callable[[int], AbstractContextManager[Steps]]
"""Who is told how far a look at so many new epochs is."""
NUM_HEADS_AGAIN = 16
"""How many heads that are known are asked of the chain again at each turn."""


@dataclass(frozen=True)
class Progress:
    """How far the log is checked, and how much of it has been looked at again since the watch began."""

    epochs: int
    size: int
    checkpoint_size: int
    """Of the newest signed checkpoint; 0 where none is signed."""
    num_again: int
    num_replayed: int
    """Submissions that were judged again, ever."""
    num_faults: int
    """All that were ever found."""
    head_time: int = 0
    """When the chain took the newest head, in chain seconds; 0 where there is none."""
    chain_time: int = 0
    """Of the chain's newest block: a node that stands still shows by it."""

    def as_json(self) -> dict[str, Any]:
        return {"schema_version": 1, "event": "checked", **self.__dict__}

    def line(self) -> str:
        signed = f", checkpoint of {self.checkpoint_size} leaves" if self.checkpoint_size else ""
        judged = f", {self.num_replayed} submissions judged again" if self.num_replayed else ""
        mark, faults = ("✗", f"; {self.num_faults} faults so far, each told once") if self.num_faults else ("✓", "")
        looked = f"{self.num_again} looked at again"
        age = f", newest head {max(0, self.chain_time - self.head_time)} s old" if self.head_time else ""
        return f"{mark} {self.size} leaves in {self.epochs} epochs{age}{signed}, {looked}{judged}{faults}"


class Watch:
    """One auditor's memory of one log."""

    def __init__(
        self,
        db: sqlite3.Connection,
        client: CoordinatorClient,
        chain: ChainPool,
        *,
        key: NoteKey | None,
        nodes: Collection[str] = (),
        replay: Replay | None = None,
        share: float = 0.0,
        shown: Shown = lambda _: nullcontext(Unseen()),
        open_events: Callable[[], ChainEvents],
    ) -> None:
        self._db = db
        self._client = client
        self._chain = chain
        self._key = key
        self.alerts = Alerts(db, nodes)
        self.samples = Samples(db, share)
        self._replay = replay
        self._head_time = self._chain_time = 0
        self.claims = Claims(db, open_events)
        self.history = History(db, [self.alerts.observe, self.samples.observe, self.claims.observe])
        db.executescript(SCHEMA)
        self._shown = shown
        self._num_again = 0

    def turn(self, num_again: int | None = None) -> Iterator[Alert]:
        """Look once, at what is new and at `num_again` leaves of before (None: at all); each alert, to be told.

        Raises Unreachable where the coordinator or the chain doesn't answer, once all that could be seen is told:
        who hides one thing doesn't hide another by it.
        """
        known = self.history.size
        lacks = [
            self._look(self._follow),
            self._look(self._check_known_heads),
            self._look(self._check_claims),
            self._look(self._check_kept),
            self._look(self._check_checkpoint),
            self._look(lambda: self._look_again(known, known if num_again is None else num_again)),
        ]
        yield from self._tell()
        for submission_id in self.samples.waiting() if self._replay is not None else []:
            self._judge_again(submission_id)
            yield from self._tell()
        for lack in filter(None, lacks):
            raise lack

    def remember(self, note: str, source: str) -> None:
        """Hold a checkpoint that somebody kept against the log, now or once the log is as long."""
        if self._key is None:
            raise VerificationFailed("this pool's log has no key", f"{source} isn't its checkpoint")
        checkpoint = open_checkpoint(note, self._key).checkpoint
        if (fault := self._contradiction(checkpoint)) is not None:
            self.alerts.note_fault("rewritten", f"{source}: {fault}")
        self._keep(checkpoint, note)

    @property
    def progress(self) -> Progress:
        (signed,) = self._db.execute("SELECT COALESCE(MAX(size), 0) FROM checkpoint").fetchone()
        size, epochs = self.history.size, self.history.num_epochs
        done, faults = self.samples.num_done(), self.alerts.num_faults()
        return Progress(epochs, size, signed, self._num_again, done, faults, self._head_time, self._chain_time)

    def _tell(self) -> Iterator[Alert]:
        while untold := self.alerts.untold():
            for alert in untold:
                yield alert
                self.alerts.mark_told(alert)

    def _judge_again(self, submission_id: str) -> None:
        """Hold each verdict on a submission against this machine's own judgement."""
        assert self._replay is not None
        try:
            faults = self._replay(submission_id)
        except VerificationFailed as fault:
            faults = [str(fault)]
        except ProofpoolError as lack:
            if self.samples.note_failure(submission_id):
                self.alerts.note_news("replay", submission_id, f"can't be judged again: {lack}")
            return
        for found in faults:
            self.alerts.note_fault("replay", found, subject=submission_id)
        self.samples.mark_done(submission_id)

    def _look(self, at: Callable[[], None]) -> Unreachable | None:
        """One part of a turn. What doesn't hold is an alert, and the other parts are looked at all the same.

        Returns why it couldn't be looked at.
        """
        try:
            at()
        except VerificationFailed as fault:
            self.alerts.note_fault("inconsistent", str(fault))
        except (NotFound, Rejected) as refusal:
            return Unreachable("the coordinator refuses to show its log", str(refusal), "ask its operator")
        except Unreachable as lack:
            return lack
        return None

    def _follow(self) -> None:
        """Take over one anchored epoch after the other, with what it pays for nothing."""
        self._note_unearned()
        heads = self._chain.heads(_remembered(self.history.num_epochs, self._chain.num_epochs()))
        with self._shown(len(heads)) as steps:
            for head in heads:
                steps.doing(f"epoch {head.epoch}, up to leaf {head.size}")
                self.history.follow([head], self._client.entries)
                self._note_unearned()
                steps.step()

    def _check_claims(self) -> None:
        """What the log says of the chain is what the chain says."""
        for claim in self.claims.false_ones():
            self.alerts.note_fault(claim.kind, claim.detail, claim.epoch, claim.log_index)

    def _note_unearned(self) -> None:
        """Payments for nothing, past the last that there is an alert of."""
        (last,) = self._db.execute("SELECT COALESCE(MAX(log_index), -1) FROM alert WHERE kind = 'unearned'").fetchone()
        while faults := self.history.payments.faults_after(last):
            for fault in faults:
                self.alerts.note_fault("unearned", fault.detail, fault.epoch, fault.log_index)
            last = faults[-1].log_index

    def _check_known_heads(self) -> None:
        """The chain still has the newest heads that were taken over: not another branch of it.

        Raises Unreachable while the chain's node doesn't have as many any more.
        """
        num_epochs = self._chain.num_epochs()
        known = self._known_heads(_remembered(self.history.num_epochs - NUM_HEADS_AGAIN, num_epochs))
        if num_epochs < self.history.num_epochs:
            epochs = f"{num_epochs} epochs, {self.history.num_epochs} were there before"
            raise Unreachable("the chain's node is behind what was seen of the chain", epochs, "give another --chain")
        found = {head.epoch: head for head in self._chain.heads(known[0].epoch)} if known else {}
        self._head_time, self._chain_time = max((head.time for head in found.values()), default=0), self._chain.time()
        for head in known:
            if head.epoch in found and found[head.epoch] != head:
                other = found[head.epoch]
                raise VerificationFailed(
                    f"the chain has another head of epoch {head.epoch} than before",
                    f"{other.size} leaves under {other.root}, not {head.size} under {head.root}",
                )

    def _check_checkpoint(self) -> None:
        """What the log's key signs is what its leaves hash to. The signed notes stay, as evidence."""
        if self._key is None:
            return
        try:
            note = self._client.checkpoint()
        except NotFound:
            return
        checkpoint = open_checkpoint(note, self._key).checkpoint
        self._keep(checkpoint, note)
        self._hold(checkpoint)

    def _check_kept(self) -> None:
        """Those checkpoints hold that the log has reached since the last look."""
        row = self._db.execute("SELECT size FROM held_checkpoints").fetchone()
        reached = (row[0] if row is not None else -1, self.history.size)
        for (note,) in self._db.execute("SELECT note FROM checkpoint WHERE size > ? AND size <= ?", reached).fetchall():
            self._hold(Checkpoint.parse(note))
        self._db.execute("INSERT OR REPLACE INTO held_checkpoints VALUES (1, ?)", (self.history.size,))

    def _hold(self, checkpoint: Checkpoint) -> None:
        if (fault := self._contradiction(checkpoint)) is not None:
            self.alerts.note_fault("rewritten", fault)

    def _look_again(self, size: int, most: int) -> None:
        """The next of the first `size` leaves are served as they were, from the first again after the last."""
        row = self._db.execute("SELECT next_leaf FROM second_look").fetchone()
        start = row[0] if row is not None and row[0] < size and most < size else 0
        end = min(size, start + most)
        while start < end:
            page = self._client.entries(start, min(MAX_ENTRIES, end - start))
            self._compare(page[: end - start], start)
            start += len(page)
        with transaction(self._db):
            self._db.execute("INSERT OR REPLACE INTO second_look VALUES (1, ?)", (end,))

    def _compare(self, page: Sequence[LogEntry], start: int) -> None:
        if not page:
            self.alerts.note_fault("rewritten", f"leaf {start} isn't served any more", log_index=start)
            raise VerificationFailed("the coordinator holds back log entries", f"from leaf {start} on")
        known = self.history.read([NodeAddress(0, start + place) for place in range(len(page))])
        for index, (entry, leaf) in enumerate(zip(page, known, strict=True), start):
            self._num_again += 1
            if (fault := _difference(entry, index, leaf)) is not None:
                self.alerts.note_fault("rewritten", fault, log_index=index)

    def _contradiction(self, checkpoint: Checkpoint) -> str | None:
        """How it contradicts the log as it is known; None where it doesn't, or can't be told yet."""
        if checkpoint.size > self.history.size:
            return None
        root = root_of(self.history, checkpoint.size)
        if root == checkpoint.root:
            return None
        return f"a signed checkpoint of {checkpoint.size} leaves has root {checkpoint.root}, the log {root}"

    def _keep(self, checkpoint: Checkpoint, note: str) -> None:
        """Two different notes of one size are a rewritten log, whatever the leaves are. Both stay."""
        row = self._db.execute("SELECT note FROM checkpoint WHERE size = ?", (checkpoint.size,)).fetchone()
        if row is None:
            self._db.execute("INSERT INTO checkpoint VALUES (?, ?)", (checkpoint.size, note))
        elif Checkpoint.parse(row[0]).root != checkpoint.root:
            self._db.execute("INSERT OR IGNORE INTO other_checkpoint VALUES (?)", (note,))
            roots = f"{checkpoint.root}, and before {Checkpoint.parse(row[0]).root}"
            self.alerts.note_fault("rewritten", f"two signed checkpoints of {checkpoint.size} leaves: {roots}")

    def _known_heads(self, start: int) -> list[LogHead]:
        rows = self._db.execute("SELECT epoch, size, root FROM head WHERE epoch >= ? ORDER BY epoch", (start,))
        return [LogHead(*row) for row in rows]


def _remembered(epoch: int, num_epochs: int) -> int:
    """This epoch, or the first one later whose head the chain still has."""
    return max(epoch, 0, num_epochs - NUM_HEADS_ON_CHAIN)


def stay_with_pool(db: sqlite3.Connection, pool_id: int) -> None:
    """Bind the memory to a pool at the first start. Raises ConfigError for any other, later."""
    db.execute("CREATE TABLE IF NOT EXISTS watched (pool_id INTEGER NOT NULL) STRICT")
    row = db.execute("SELECT pool_id FROM watched").fetchone()
    if row is None:
        db.execute("INSERT INTO watched VALUES (?)", (pool_id,))
    elif row[0] != pool_id:
        raise ConfigError(
            "this folder remembers another pool's log", f"pool {row[0]}, not {pool_id}", "give --state another folder"
        )


def _difference(entry: LogEntry, index: int, leaf: str) -> str | None:
    """How what is served at `index` differs from what was; None where it doesn't."""
    try:
        found = checked_leaf(entry, index)
    except VerificationFailed as fault:
        return str(fault)
    return None if found == leaf else f"leaf {index} is {found} now, and was {leaf}"
