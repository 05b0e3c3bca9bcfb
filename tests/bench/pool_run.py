"""What a page says of a testnet's run: the plan, its curve and totals as one small document.

In: the folder of a finished run. Out: JSON, to be kept under docs/data; without it, run folders are gigabytes.

    python -m tests.bench.pool_run RUN_DIR > docs/data/smollm2.pool-run.json
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocol.rules import Rules
from testnet.plan import Plan
from testnet.summary import Summary
from trainer.metrics_file import FILE_NAME, MetricsFile

PLANNED = ("num_steps", "num_workers", "num_verifiers", "cheats", "engine", "max_async", "groups_per_step", "recipe")
FOUND = [
    *("accepted", "rejected", "honest_rejected", "expired", "slashed", "audit", "checks"),
    *("reward_first", "reward_last", "num_held_back", "credits_paid_wei", "credits_owed_wei"),
    *("first_accept_seconds", "wall_seconds"),
]
STEP = ["mean_task_reward", "entropy", "grad_norm", "ratio_clipped_share", "mean_policy_lag", "num_dropped_groups"]
SECONDS = ("waited_seconds", "learn_seconds", "save_seconds", "step_seconds")
DIGITS = 4


def condensed(run_dir: Path) -> dict[str, Any]:
    """The run's document. Raises OSError where the folder has no finished run."""
    plan = Plan.model_validate_json((run_dir / "config.json").read_bytes())
    summary = Summary.model_validate_json((run_dir / "summary.json").read_bytes())
    rules = Rules.model_validate_json((run_dir / "config" / "rules.json").read_bytes())
    lines = list(MetricsFile(run_dir / FILE_NAME).lines())
    return {
        "schema_version": 1,
        "plan": plan.model_dump(mode="json", include=set(PLANNED)),
        "rules": rules.model_dump(mode="json", exclude={"thresholds"}),
        "summary": summary.model_dump(mode="json", include=set(FOUND)),
        "steps": [_step(line) for line in lines if "mean_task_reward" in line],
        "held_back": sorted(_evaluations(lines), key=lambda found: int(found["step"])),
    }


def _step(line: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": line["step"], **{name: _short(line.get(name)) for name in (*STEP, *SECONDS)}}


def _evaluations(lines: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for line in lines:
        if "held_back_average" in line:
            num_completions = line["num_held_back"] * line["num_samples"]
            average = line["held_back_average"]
            yield {
                "step": line["step"],
                "average": _short(average),
                "at_least_once": _short(line["held_back_at_least_once"]),
                "num_completions": num_completions,
                "standard_error": _short(math.sqrt(average * (1 - average) / num_completions)),
            }


def _short(value: Any) -> Any:
    return round(value, DIGITS) if isinstance(value, float) else value


if __name__ == "__main__":
    print(json.dumps(condensed(Path(sys.argv[1])), indent=1))
