"""The attack matrix: how many of each attack's rollouts and submissions are caught, by which check, at what cost.

In: an arena and attacks. Out: a `Line` an attack. Per rollout: each altered rollout judged as a file of its own. Per
submission: files of 64 rollouts with a lie in them, resampled from those that were tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.reasons import Outcome
from protocol.wire import CheckResult
from tests.attacks.shares import Share, resampled_files, share_of_sets, wilson
from tests.attacks.trial import Trial

ROLLOUTS_A_FILE = 64


@dataclass(frozen=True)
class Effort:
    """How much resampling: sets of rollouts, files drawn from each, and files of which rows are audited."""

    num_sets: int = 100
    num_files: int = 4
    num_audits: int = 300


@dataclass(frozen=True)
class Line:
    """One attack against one pool.

    `value` and `limit` are of the check that decides most of the files, at their median; `outcome` is the mildest
    among the refused files; `least_excess` is the smallest value/limit over files, the attack's distance from passing.
    """

    attack: str
    lie: str
    close: str
    num_rollouts: int
    num_altered: int
    num_tokens: int
    rollouts: Share
    submissions: Share
    check: str
    reason: str
    outcome: str
    value: float | None
    limit: float | None
    least_excess: float | None


def line_of(trial: Trial, effort: Effort) -> Line:
    altered = trial.altered
    caught = sum(trial.judge([one]).outcome != Outcome.ACCEPT for one in altered)
    is_altered = [one.is_altered for one in trial.rollouts]
    sets = [
        [trial.judge([trial.rollouts[number] for number in file]) for file in files]
        for files in resampled_files(is_altered, ROLLOUTS_A_FILE, effort.num_sets, effort.num_files)
    ]
    refusals = [result for files in sets for result in files if result.outcome != Outcome.ACCEPT]
    return Line(
        attack=trial.attack.name,
        lie=trial.attack.lie,
        close=trial.attack.close,
        num_rollouts=len(trial.rollouts),
        num_altered=len(altered),
        num_tokens=sum(one.rollout.num_units for one in trial.rollouts),
        rollouts=wilson(caught, len(altered)),
        submissions=share_of_sets([[r.outcome != Outcome.ACCEPT for r in files] for files in sets]),
        **_what_decided(refusals),
    )


def _what_decided(refusals: Sequence[CheckResult]) -> dict[str, Any]:
    if not refusals:
        return dict.fromkeys(("check", "reason", "outcome"), "") | dict.fromkeys(("value", "limit", "least_excess"))
    check = Counter(result.check for result in refusals).most_common(1)[0][0]
    deciding = [result for result in refusals if result.check == check]
    values = [r.value for r in deciding if r.value is not None and r.reject_threshold]
    excess = [r.value / r.reject_threshold for r in deciding if r.value is not None and r.reject_threshold]
    return {
        "check": check,
        "reason": deciding[0].reason or "",
        "outcome": Outcome(min(result.outcome for result in refusals)).name.lower(),
        "value": float(np.median(values)) if values else None,
        "limit": float(np.median([r.reject_threshold for r in deciding if r.reject_threshold])) if values else None,
        "least_excess": float(min(excess)) if excess else None,
    }
