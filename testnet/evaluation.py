"""The pass rate of the first and the last weights on the same held-back problems.

In: the origin's folder of a run. Out: two shares between 0 and 1. Nothing of it is used in training:
held-back problems are none that a task can draw.
"""

from __future__ import annotations

from pathlib import Path

import httpx

from protocol.forward import CausalLM
from protocol.shardcast.client import fetch_version
from protocol.tokenizer import Tokenizer
from protocol.wire import WeightsRelease
from testnet.pass_rate import pass_rate
from testnet.task import MAX_NEW_TOKENS, NUM_HELD_BACK, testnet_environment

EVALUATION_SEED = 1


def pass_rates(relay_url: str, releases: list[WeightsRelease], folder: Path) -> list[float]:
    """Fetch each released version as a worker does, and measure it."""
    rates = []
    with httpx.Client() as http:
        for release in releases:
            model_folder = fetch_version(http, [relay_url], release, folder)
            environment = testnet_environment(Tokenizer.load(model_folder))
            problems = environment.held_back(NUM_HELD_BACK)
            model = CausalLM.load(model_folder)
            rates.append(pass_rate(model, environment, problems, MAX_NEW_TOKENS, EVALUATION_SEED))
    return rates
