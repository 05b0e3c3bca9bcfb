"""`proofpool trainer filter`: everything around `trainer/problem_filter.py`.

In: the command's options. Out: the report, printed by the command and written into the folder `--out`, beside what it
was made of: with other limits it costs nothing, and more problems cost what they add.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from protocol.engines.base import Engine
from protocol.environments.registry import environment_of
from protocol.errors import UsageError
from protocol.files import write_atomically
from protocol.lock import FolderLock
from protocol.progress import Progress
from protocol.rules_document import unjudged_rules
from protocol.tokenizer import Tokenizer
from protocol.weights_parts import weights_files
from trainer.problem_filter import (
    FilterPlan,
    FilterReport,
    TierBounds,
    filter_problems,
    journal_of,
    num_chunks,
    with_tiers,
)

MEASURED, REPORT = "measured.jsonl", "report.json"


def filter_run(
    engine: Engine,
    model: Path,
    rules_file: Path,
    out: Path,
    *,
    first: int,
    num_problems: int,
    num_samples: int,
    seed: int,
    limits: tuple[float, float],
    tiers: Sequence[TierBounds] = (),
) -> FilterReport:
    """Raises UsageError for an impossible range, ConfigError for another environment than the rules'."""
    tokenizer = Tokenizer.load(model)
    rules = unjudged_rules(rules_file, tokenizer)
    environment = environment_of(rules.environment, tokenizer)
    if first + num_problems > environment.num_problems:
        raise UsageError(
            "there aren't so many problems",
            f"{first} + {num_problems} of {environment.num_problems}",
            "measure fewer, or raise the environment's num_problems",
        )
    if limits[0] > limits[1]:
        raise UsageError("no problem can be kept", f"--low {limits[0]} is above --high {limits[1]}")
    plan = FilterPlan(
        environment_hash=environment.environment_hash,
        model_sha256=_weights_sha256(model),
        first=first,
        num_samples=num_samples,
        seed=seed,
    )
    engine.load(model)
    with FolderLock(out, "filter"):
        measured = journal_of(plan, out / MEASURED)
        total, left = num_chunks(num_problems), num_chunks(num_problems - len(measured.passes()))
        with Progress("chunks of problems", total, num_done=total - left) as progress:
            report = filter_problems(plan, num_problems, rules, environment, engine, measured, limits, progress)
    report = with_tiers(report, tiers)
    write_atomically(out / REPORT, report.model_dump_json(indent=2).encode() + b"\n")
    return report


def _weights_sha256(model: Path) -> str:
    """Of the file, or of all of them one after the other."""
    digest = hashlib.sha256()
    for name in weights_files(model):
        with (model / name).open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
