"""What is in the files that were handed in: rewards as claimed, and completions that several nodes have.

    received in the log ─▶ the file, held against the logged content hash ─▶ rewards by node; overlap between nodes

In: submissions that the log received, and where to get their files. Out: `Deliveries`. Memory doesn't grow with the
number of completions: they wait in a temporary database. Short answers coincide without anybody's doing: a pair that
overlaps in long ones, or in nearly all questions that both were asked, says more.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from protocol.errors import MalformedFile, NotFound, Rejected
from protocol.rollouts import Rollout, content_hash, read_rollouts
from protocol.rules import Rules
from verifier.audit.fairness.leases import Work

SCHEMA = """
CREATE TABLE completion (
    content BLOB NOT NULL, node TEXT NOT NULL, num_tokens INTEGER NOT NULL, PRIMARY KEY (content, node)
) STRICT, WITHOUT ROWID;
CREATE TABLE question (
    problem BLOB NOT NULL, node TEXT NOT NULL, PRIMARY KEY (problem, node)
) STRICT, WITHOUT ROWID;
CREATE TABLE shared (content BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
"""
MAX_NODES = 32
"""A completion that more nodes have is common: it is counted, and says nothing of any two of them."""
MAX_PROMPT_TOKENS = 8192

ReadFile = Callable[[str], bytes]


@dataclass
class Rewards:
    """Of a node's rollouts, as claimed. `num_full`: rewards of exactly 1."""

    num_rollouts: int = 0
    total: float = 0.0
    num_full: int = 0

    def add(self, rollout: Rollout) -> None:
        self.num_rollouts += 1
        self.total += rollout.task_reward
        self.num_full += rollout.task_reward == 1.0


@dataclass(frozen=True)
class SharedPair:
    """Two nodes' overlap: of questions that both were asked, and of completions of the same question.

    `most_tokens`: of the longest completion that both have.
    """

    nodes: tuple[str, str]
    num_questions: int
    num_completions: int
    most_tokens: int


@dataclass
class Deliveries:
    """Files by what became of them, rewards and completions by node."""

    files: Counter[str] = field(default_factory=Counter)
    """read; missing: not kept any more; other: not what the log has; unknown: under rules that aren't known."""
    rewards: dict[str, Rewards] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # on disk, where it grows, and gone with the connection
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        self._db.close()

    def read(self, submission_id: str, work: Work, rules: Rules | None, read_file: ReadFile) -> None:
        """Take in a submission's file."""
        rollouts = _rollouts(work, rules, lambda: read_file(submission_id)) if rules is not None else "unknown"
        if isinstance(rollouts, str):
            self.files[rollouts] += 1
            return
        self.files["read"] += 1
        node = work.lease.node
        rewards = self.rewards.setdefault(node, Rewards())
        for rollout in rollouts:
            rewards.add(rollout)
        self._db.executemany("INSERT OR IGNORE INTO completion VALUES (?, ?, ?)", _completions(rollouts, node))
        problems = {(_digest(rollout.problem_id.encode()), node) for rollout in rollouts}
        self._db.executemany("INSERT OR IGNORE INTO question VALUES (?, ?)", sorted(problems))

    def num_completions(self) -> dict[str, int]:
        """By node: different ones, to different questions."""
        return dict(self._db.execute("SELECT node, COUNT(*) FROM completion GROUP BY node ORDER BY node").fetchall())

    def num_common(self) -> int:
        """Completions that more than `MAX_NODES` nodes have."""
        query = "SELECT COUNT(*) FROM (SELECT 1 FROM completion GROUP BY content HAVING COUNT(*) > ?)"
        return int(self._db.execute(query, (MAX_NODES,)).fetchone()[0])

    def shared_pairs(self) -> tuple[SharedPair, ...]:
        """Pairs of nodes with a completion in common, those first that have most."""
        self._db.execute("DELETE FROM shared")
        self._db.execute(
            "INSERT INTO shared SELECT content FROM completion GROUP BY content HAVING COUNT(*) BETWEEN 2 AND ?",
            (MAX_NODES,),
        )
        rows = self._db.execute(
            "SELECT a.node, b.node, COUNT(*), MAX(a.num_tokens) FROM shared JOIN completion a USING (content)"
            " JOIN completion b ON b.content = a.content AND b.node > a.node GROUP BY a.node, b.node"
            " ORDER BY COUNT(*) DESC, a.node, b.node"
        ).fetchall()
        return tuple(SharedPair((a, b), self._num_questions(a, b), number, most) for a, b, number, most in rows)

    def _num_questions(self, one: str, other: str) -> int:
        query = "SELECT COUNT(*) FROM question a JOIN question b USING (problem) WHERE a.node = ? AND b.node = ?"
        return int(self._db.execute(query, (one, other)).fetchone()[0])


def _rollouts(work: Work, rules: Rules, read_file: Callable[[], bytes]) -> list[Rollout] | str:
    """The rows, if they are those whose hash the log has; else what is wrong."""
    max_rows = rules.group_size * rules.groups_per_task
    try:
        header, rollouts = read_rollouts(
            read_file(), max_rows=max_rows, max_tokens=max(MAX_PROMPT_TOKENS, rules.sampling.max_new_tokens)
        )
    except (NotFound, Rejected):
        return "missing"
    except MalformedFile:
        return "other"
    return rollouts if content_hash(header, rollouts) == work.content_hash else "other"


def _completions(rollouts: Iterable[Rollout], node: str) -> Iterator[tuple[bytes, str, int]]:
    for rollout in rollouts:
        tokens = rollout.output_tokens.astype("<i4").tobytes()
        yield _digest(rollout.problem_id.encode() + b"\0" + tokens), node, rollout.num_units


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:16]
