"""Rehearsals of arms, one after the other, in one process and one thread; what is finished isn't run again.

    folder/filter/report.json      the offline filter over the first NUM_MEASURED problems
    folder/ARM/SEED/metrics.jsonl  one rehearsal

In: arms, seeds, a folder. Out: each run's lines. A run that was cut short starts anew: a rehearsal has no checkpoints.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from protocol.clock import SystemClock
from protocol.engines.torch import TorchEngine
from protocol.environments.registry import load_environment
from protocol.progress import Unseen
from protocol.rules import EnvironmentRules, Rules
from protocol.tokenizer import Tokenizer
from testnet.plan import BASE_MODEL
from testnet.rules import testnet_rules, write_rules
from tests.bench.curves.arms import ARMS, EXPERIMENTS, Arm
from tests.bench.curves.document import Curve, Document, curve_of, filtered_of, settings_of
from trainer.filter_run import filter_run
from trainer.problem_filter import FilterReport
from trainer.rehearsal import RehearsalConfig, rehearse

NUM_HELD_BACK = 512
NUM_MEASURED, NUM_SAMPLES, LIMITS = 2_048, 8, (0.125, 0.5)
"""Of the offline filter: problems, samples of each, and the shares of passes that are kept (the paper's)."""
MAX_BATCH = 256

FOLDER = Path("runs/curves")
COMMAND = "python -m tests.bench.curves"

Lines = list[dict[str, Any]]


def run_all(experiments: Sequence[str], num_seeds: int, folder: Path) -> None:
    """Every arm of the experiments, seed by seed, a line on stdout for each run."""
    torch.set_num_threads(1)
    for arm, seed in _chosen(experiments, num_seeds):
        started = time.process_time()
        rates = " ".join(f"{rate:.3f}" for rate in curve_of(run(arm, seed, folder)).pass_rates)
        print(f"{arm.name} seed {seed}: {rates}, {time.process_time() - started:.0f} CPU-s", flush=True)


def collect(num_seeds: int, folder: Path) -> Document:
    """The curves of all runs that are finished."""
    curves: dict[str, dict[int, Curve]] = {}
    for arm, seed in _chosen(tuple(EXPERIMENTS), num_seeds):
        lines = finished(settings(arm, seed, folder))
        if lines is not None:
            curves.setdefault(arm.name, {})[seed] = curve_of(lines)
    arms = {name: settings_of(ARMS[name]) for name in curves}
    return Document(COMMAND, filtered_of(filter_report(folder)), arms, curves)


def _chosen(experiments: Sequence[str], num_seeds: int) -> Iterator[tuple[Arm, int]]:
    return ((arm, seed) for seed in range(num_seeds) for name in experiments for arm in EXPERIMENTS[name])


def run(arm: Arm, seed: int, folder: Path) -> Lines:
    """The lines of one run, run now unless it is finished."""
    config = settings(arm, seed, folder)
    if (lines := finished(config)) is not None:
        return lines
    shutil.rmtree(config.data_dir, ignore_errors=True)
    rehearse(config, TorchEngine(MAX_BATCH), SystemClock(), Unseen())
    shutil.rmtree(config.data_dir / "versions")
    lines = finished(config)
    assert lines is not None
    return lines


def settings(arm: Arm, seed: int, folder: Path) -> RehearsalConfig:
    return RehearsalConfig.model_validate(
        {
            "base_model": BASE_MODEL,
            "rules": rules_file(arm.is_filtered, folder),
            "data_dir": folder / arm.name / str(seed),
            "num_steps": arm.num_steps,
            "lag": arm.lag,
            "groups_per_step": arm.groups_per_step,
            "drop_flat_groups": True,
            "max_batch": MAX_BATCH,
            "seed": seed,
            "evaluate_every": arm.evaluate_every,
            "num_held_back": NUM_HELD_BACK,
            "recipe": arm.recipe,
        }
    )


def finished(config: RehearsalConfig) -> Lines | None:
    """The lines of a run that was made with these settings and came to its end, else None."""
    written, metrics = config.data_dir / "config.json", config.data_dir / "metrics.jsonl"
    if not (written.exists() and metrics.exists()) or json.loads(written.read_text()) != json.loads(
        config.model_dump_json()
    ):
        return None
    texts = metrics.read_text().splitlines()
    return [json.loads(text) for text in texts] if len(texts) == config.num_steps + 1 else None


def rules_file(is_filtered: bool, folder: Path) -> Path:
    """The testnet's rules; where asked, with the problems alone that the offline filter keeps."""
    folder.mkdir(parents=True, exist_ok=True)
    rules = testnet_rules(BASE_MODEL)
    plain = write_rules(rules, folder / "rules.json")
    if not is_filtered:
        return plain
    return write_rules(only(rules, filter_report(folder).indexes), folder / "filtered-rules.json")


def filter_report(folder: Path) -> FilterReport:
    """What the offline filter keeps; what is measured already isn't measured again."""
    return filter_run(
        TorchEngine(MAX_BATCH),
        BASE_MODEL,
        write_rules(testnet_rules(BASE_MODEL), folder / "rules.json"),
        folder / "filter",
        first=0,
        num_problems=NUM_MEASURED,
        num_samples=NUM_SAMPLES,
        seed=0,
        limits=LIMITS,
    )


def only(rules: Rules, indexes: tuple[int, ...]) -> Rules:
    """The same rules, whose tasks draw from these problems."""
    name, config = rules.environment.name, {**rules.environment.config, "only": list(indexes)}
    environment = load_environment(name, config, Tokenizer.load(BASE_MODEL))
    chosen = EnvironmentRules(name=name, config=config, environment_hash=environment.environment_hash)
    return rules.model_copy(update={"environment": chosen})
