"""The pass rate of the first and the last weights on the same held-back problems.

In: the relay of a run, and its pool's rules. Out: two shares between 0 and 1, measured as the trainer measures its
versions (`trainer/evaluation.py`). Nothing of it is used in training: held-back problems are none that a task can draw.
"""

from __future__ import annotations

from pathlib import Path

from protocol.engines.registry import make_engine
from protocol.environments.registry import environment_of
from protocol.rules import Rules
from protocol.shardcast.client import fetch
from protocol.shardcast.line import weights_client
from protocol.tokenizer import Tokenizer
from protocol.wire import WeightsRelease
from trainer.evaluation import EVALUATION_SEED, pass_counts
from trainer.evaluation import pass_rates as rates_of

MAX_BATCH = 128


def pass_rates(
    relay_url: str, releases: list[WeightsRelease], folder: Path, rules: Rules, num_held_back: int
) -> list[float]:
    """Fetch each released version as a worker does, and measure it."""
    rates, engine = [], make_engine("torch", max_batch=MAX_BATCH)
    with weights_client() as http:
        for release in releases:
            model_folder = fetch(http, [relay_url], release, folder).folder
            environment = environment_of(rules.environment, Tokenizer.load(model_folder))
            engine.load(model_folder)
            problems = environment.held_back(num_held_back)
            rates.append(rates_of(pass_counts(engine, environment, problems, rules, 1, EVALUATION_SEED), 1).average)
    return rates
