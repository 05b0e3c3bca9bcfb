"""How few rollouts a verifier may look at and still catch: the draw of `protocol/checks/audit_rows.py`, simulated.

In: a trial. Out: for each number of audited rollouts how often the attack's file is caught, and the least number at
which a full cheat is caught in its first file with 99 %, or one that cheats in a tenth within 20 files. A file whose
audited rollouts are suspicious is looked at as a whole (`escalating`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from protocol.canonical import hex0x
from protocol.checks.audit_rows import drawn_rollouts
from protocol.reasons import Outcome
from protocol.rules import AuditRules
from tests.attacks.matrix import ROLLOUTS_A_FILE
from tests.attacks.trial import Trial

COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
"""Audited rollouts of a file of 64."""

WANTED = 0.99


@dataclass(frozen=True)
class Audits:
    """How often a file of this attack is caught, by how many of its rollouts are audited (`counts`)."""

    attack: str
    lie: str
    counts: tuple[int, ...]
    shares: tuple[float, ...]

    def least(self, num_files: int) -> int | None:
        """The least number of audited rollouts that catches within so many files, with WANTED."""
        missed = zip(self.counts, self.shares, strict=True)
        return next((count for count, share in missed if 1 - (1 - share) ** num_files >= WANTED), None)


def audits(trial: Trial, num_files: int = 300) -> Audits:
    """Over files of 64 rollouts drawn from the tried ones, each with a beacon of its own."""
    alone = [_is_refused(trial, [number]) for number in range(len(trial.rollouts))]
    caught = np.zeros(len(COUNTS))
    for number in range(num_files):
        source = np.random.default_rng(number)
        file = source.integers(len(trial.rollouts), size=ROLLOUTS_A_FILE)
        if _is_refused(trial, file):
            caught += [_is_suspicious(trial, alone, file[_drawn(count, source.bytes(32))]) for count in COUNTS]
    shares = tuple(float(share) for share in caught / num_files)
    return Audits(trial.attack.name, trial.attack.lie, COUNTS, shares)


def _drawn(count: int, beacon: bytes) -> list[int]:
    rules = AuditRules(policy="sampled", share=count / ROLLOUTS_A_FILE)
    return list(drawn_rollouts(rules, ROLLOUTS_A_FILE, hex0x(beacon), hex0x(bytes(32)), 0))


def _is_suspicious(trial: Trial, alone: Sequence[bool], numbers: Sequence[int]) -> bool:
    """As `protocol/checks/stages.py` has it: any of them by itself, or all together."""
    return any(alone[number] for number in numbers) or _is_refused(trial, numbers)


def _is_refused(trial: Trial, numbers: Iterable[int]) -> bool:
    return trial.judge([trial.rollouts[number] for number in numbers]).outcome != Outcome.ACCEPT
