"""The trainer's loop against a real coordinator, synchronous to eight versions of lag: who is used, who is stale."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coordinator.db.chain import Version
from protocol.clock import SystemClock
from protocol.errors import Rejected
from protocol.forward import CausalLM
from protocol.reasons import RejectReason
from protocol.waiting import Waiting
from protocol.weights import ModelConfig
from tests.unit.coordinator.conftest import POOL_ID, Site, number_hash, site
from trainer.batches import Batches
from trainer.broadcast import Broadcaster
from trainer.checkpoint import CheckpointStore
from trainer.crew import Crew
from trainer.held_back import EvaluationConfig, Evaluations
from trainer.learner import Learner, RecipeConfig
from trainer.loop import Trainer
from trainer.metrics_file import MetricsFile
from trainer.reporting import Reporting
from trainer.run_status import status_of
from trainer.stopwatch import Stopwatch

__all__ = ["site"]

NUM_ROLLOUTS = 4
"""Of a batch: two groups of two."""


class Mirrors:
    """A chain whose events the coordinator's index has at once."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.manifests: dict[int, str] = {}

    def manifest_hash(self, policy_version: int) -> str | None:
        return self.manifests.get(policy_version)

    def publish_weights(self, policy_version: int, manifest_hash: str) -> None:
        self.manifests[policy_version] = manifest_hash
        version = Version(
            pool_id=POOL_ID,
            policy_version=policy_version,
            manifest_hash=manifest_hash,
            beacon_block=self.site.num_blocks,
            beacon_hash=number_hash(1000 + policy_version),
            published_time=int(self.site.clock.now()),
            release_signature=None,
        )
        self.site.mirror(version)


class WorkersTurn(SystemClock):
    """While the trainer waits, weights go out and workers and verifiers work: nothing depends on who is quicker."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        for thread in threading.enumerate():
            if thread.name == "publishing" and thread is not threading.current_thread():
                thread.join()
        self.work()
        return stop.is_set()


@pytest.fixture
def model() -> CausalLM:
    config = ModelConfig.model_validate(
        {
            "model_type": "llama",
            "vocab_size": 64,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "max_position_embeddings": 64,
            "tie_word_embeddings": True,
        }
    )
    generator = torch.Generator().manual_seed(0)
    shapes = config.weight_shapes().items()
    return CausalLM.of(config, {name: torch.randn(shape, generator=generator) * 0.1 for name, shape in shapes})


@pytest.fixture
def train(site: Site, model: CausalLM, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Lines of metrics.jsonl after `num_steps` in a pool of `max_async`, with these workers."""

    def run(max_async: int, num_steps: int, work: Callable[[Site, int], None]) -> list[dict[str, Any]]:
        site.pool(max_async=max_async)
        coordinator, clock = site.client(site.trainer), WorkersTurn(lambda: work(site, newest(site)))
        waiting = Waiting(clock, threading.Event(), poll_seconds=0.001)
        reporting = Reporting(MetricsFile(tmp_path / "metrics.jsonl"), clock, Stopwatch(clock))
        recipe = RecipeConfig(learning_rate=1e-3, optimizer_steps=1, warmup_steps=0)
        terms = SimpleNamespace(pool_id=POOL_ID, coordinator=site.coordinator.signer.address, max_async=max_async)
        batches = Batches(coordinator, lambda: terms, site.domain)
        folder = tmp_path / "trainer"
        Trainer(
            Crew(Learner(model, recipe), CheckpointStore(folder), tmp_path),
            Broadcaster(tmp_path / "origin", POOL_ID, Mirrors(site), coordinator, site.trainer, site.domain),
            batches,
            reporting,
            Evaluations(EvaluationConfig(), never, batches.rules, folder, reporting, waiting),
            waiting,
        ).run(num_steps)
        return reporting.metrics.lines()

    return run


def never() -> Any:
    raise AssertionError("nothing is evaluated")


def newest(site: Site) -> int:
    version = site.client().pool().policy_version
    assert version is not None
    return version


def test_a_synchronous_pool_trains_on_the_newest_version_alone_and_counts_the_rest_as_surplus(
    train: Callable[..., list[dict[str, Any]]],
) -> None:
    def twice_as_much_as_is_used(site: Site, version: int) -> None:
        site.accept(policy_version=version)
        site.accept(policy_version=version)

    lines = train(0, 4, twice_as_much_as_is_used)
    assert [line["policy_lag_counts"] for line in lines] == [{"0": NUM_ROLLOUTS}] * 4
    assert [line["num_surplus_groups"] for line in lines] == [0, 2, 2, 2]
    assert [line["num_stale_groups"] for line in lines] == [0] * 4
    assert lines[-1]["num_groups_by_use"] == {"consumed": 6, "batched": 2, "pending": 2, "surplus": 6}
    status = status_of("r", lines)
    assert status.num_unused_groups == {"surplus": 6} and status.num_unused_rollouts == {"surplus": 12}


@pytest.mark.parametrize("max_async", [0, 1, 2])
def test_eager_workers_get_no_more_work_than_is_trained_on(
    train: Callable[..., list[dict[str, Any]]], site: Site, max_async: int
) -> None:
    """Without `backlog_steps`: they ask until they are refused, whenever the trainer waits."""
    site.coordinator.config = site.coordinator.config.model_copy(update={"backlog_steps": None})
    num_refused = 0

    def as_much_as_they_get(site: Site, version: int) -> None:
        nonlocal num_refused
        try:
            while True:
                site.accept(policy_version=version)
        except Rejected as refusal:
            assert refusal.reason is RejectReason.NO_DEMAND
            num_refused += 1

    num_steps = 5
    lines = train(max_async, num_steps, as_much_as_they_get)
    assert num_refused > 0 and max(line["max_policy_lag"] for line in lines) == max_async
    uses = site.client().status().num_by_use
    assert set(uses) <= {"consumed", "pending"} and uses["consumed"] == 2 * num_steps
    assert uses.get("pending", 0) <= 2 * max_async  # for steps that there would have been


@pytest.mark.parametrize("max_async", [1, 4, 8])
def test_workers_that_are_as_far_behind_as_they_may_be_lose_nothing(
    train: Callable[..., list[dict[str, Any]]], max_async: int
) -> None:
    num_steps = max_async + 2
    lines = train(max_async, num_steps, lambda site, version: site.accept(policy_version=max(0, version - max_async)))
    assert [line["policy_lag_counts"] for line in lines] == [
        {str(min(step - 1, max_async)): NUM_ROLLOUTS} for step in range(1, num_steps + 1)
    ]
    assert [line["num_stale_groups"] for line in lines] == [0] * num_steps
    lag = status_of("r", lines).lag
    assert lag is not None and (lag.least, lag.most) == (0, max_async)


def test_what_waits_longer_than_the_lag_allows_is_left_unused_and_was_paid(
    train: Callable[..., list[dict[str, Any]]], site: Site
) -> None:
    """Three times what is used: of each version a third is used at once, a third one step later, a third never."""
    num_accepted = 0

    def three_times(site: Site, version: int) -> None:
        nonlocal num_accepted
        for _ in range(3):
            site.accept(policy_version=version)
            num_accepted += 1

    lines = train(1, 6, three_times)
    unused = {name: sum(line[f"num_{name}_groups"] for line in lines) for name in ("stale", "surplus")}
    assert sum(unused.values()) > 0 and max(line["max_policy_lag"] for line in lines) == 1
    uses = site.client().status().num_by_use
    assert sum(uses.values()) == 2 * num_accepted  # every accepted group is somewhere
    assert all(uses.get(name, 0) >= count for name, count in unused.items()) and uses["consumed"] == 2 * 6
    assert site.client().status().num_by_standing == {"accepted": num_accepted}
