"""SmolLM2-135M by vLLM: tokens of the torch engine, files that the transformers library accepts, live weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from protocol.engines.base import generate
from protocol.engines.torch import TorchEngine
from protocol.engines.vllm.engine import VllmEngine
from protocol.forward import CausalLM
from protocol.prover import in_task_order
from protocol.reasons import Outcome
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from protocol.tokenizer import TOKENIZER_FILE
from protocol.weights import save_checkpoint
from tests.attacks.pools import limits
from tests.attacks.weights import shaken
from tests.unit.verifier.verifier_world import World
from tests.vllm.work import num_diverging, task_requests
from tests.worlds.smollm2 import make_smollm2_world
from verifier.calibration.reference import ReferenceModel
from verifier.pipeline import Finding, examine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NUM_TOKENS = 32
COUNTER = 77


def make_world(folder: Path) -> World:
    """Tasks of 16 rollouts of 32 tokens."""
    sampling, thresholds = SamplingRules(max_new_tokens=NUM_TOKENS), limits("smollm2", "float32")
    return make_smollm2_world(folder, groups_per_task=2, sampling=sampling, thresholds=thresholds)


@pytest.fixture(scope="module")
def world(smollm2_folder: Path) -> World:
    torch.set_num_threads(1)
    return make_world(smollm2_folder)


@pytest.fixture(scope="module")
def next_folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A later version: every weight moved a little."""
    folder, model = tmp_path_factory.mktemp("versions") / "v1", shaken(world.model, 0.02)
    weights = model.weights(torch.bfloat16)
    save_checkpoint(folder, model.config, weights, [world.folder / TOKENIZER_FILE])
    return folder


@pytest.fixture(scope="module")
def engine(start_engine: Callable[..., VllmEngine]) -> VllmEngine:
    return start_engine(max_batch=16, max_length=256)


def judged_by_transformers(world: World, rollouts: list[Rollout]) -> Finding:
    """A verifier's whole examination, with the library's forward in the place of ours."""
    model = ReferenceModel(world.folder, "float32")
    return examine(world.dossier(rollouts, COUNTER), world.instruments(load_model=lambda: cast(Any, model)))


def refusals(finding: Finding) -> list[tuple[str, str]]:
    return [(r.check, r.reason or "") for r in finding.evidence.checks if r.outcome != Outcome.ACCEPT]


def test_each_version_is_the_torch_engines_and_accepted(world: World, next_folder: Path, engine: VllmEngine) -> None:
    started = []
    for current in (world, make_world(next_folder)):
        engine.load(current.folder)
        started.append(engine._llm)
        requests = task_requests(current, COUNTER)
        found = in_task_order(list(generate(engine, requests)), len(requests))
        ours = TorchEngine(16)
        ours.load(current.folder)
        assert num_diverging(list(generate(ours, requests)), found, CausalLM.load(current.folder).eval()) <= 1
        rollouts = current.rollouts(found, COUNTER)
        assert refusals(judged_by_transformers(current, rollouts)) == []
    assert started[0] is started[1]


def test_the_weights_before_are_refused_under_the_next_version(
    world: World, next_folder: Path, engine: VllmEngine
) -> None:
    engine.load(world.folder)
    requests = task_requests(world, COUNTER)
    stale = in_task_order(list(generate(engine, requests)), len(requests))
    finding = judged_by_transformers(make_world(next_folder), world.rollouts(stale, COUNTER))
    assert refusals(finding)
