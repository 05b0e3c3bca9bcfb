"""What a trainer saves is what vLLM runs: checkpoints of real optimizer steps, loaded, and taken by patches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protocol.engines.base import Completion, Engine, generate
from protocol.engines.torch import TorchEngine
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.shardcast.patches import diff
from protocol.weights_parts import WEIGHTS_FILE
from tests.attacks.pools import tiny
from tests.unit.verifier.verifier_world import BASE_MODEL, World
from tests.vllm.conftest import StartEngine
from tests.vllm.work import in_order, num_diverging, task_requests
from trainer.checkpoint import CheckpointStore
from trainer.learner import Learner, RecipeConfig
from trainer.samples import TrainingBatch, batch_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GREEDY = SamplingRules(max_new_tokens=48, top_k=1)
NUM_VERSIONS = 3


@pytest.fixture(scope="module")
def world() -> World:
    torch.set_num_threads(1)
    return tiny().world


@pytest.fixture(scope="module")
def checkpoints(world: World, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The model folders of the base model and of the versions after each of two steps, as they are published."""
    learner = Learner(CausalLM.load(BASE_MODEL), RecipeConfig(learning_rate=1e-3))
    store = CheckpointStore(tmp_path_factory.mktemp("run"), keep=NUM_VERSIONS)
    folders = [store.save(learner, 0, None, BASE_MODEL).model_folder]
    for version in range(1, NUM_VERSIONS):
        learner.learn(training_batch(world, version), version - 1)
        folders.append(store.save(learner, version, None, BASE_MODEL).model_folder)
    return folders


def training_batch(world: World, counter: int) -> TrainingBatch:
    """A task's rollouts, the longer the better."""
    rollouts = world.rollouts(world.completions(counter), counter)
    return batch_of([replace(one, task_reward=len(one.output_tokens) / 100) for one in rollouts], world.rules)


def greedy(engine: Engine, world: World) -> list[Completion]:
    return list(generate(engine, task_requests(world, 0, GREEDY)))


def tokens_of(completions: list[Completion]) -> list[list[int]]:
    return [completion.output_tokens.tolist() for completion in in_order(completions)]


def test_a_checkpoint_gives_the_torch_engines_tokens(
    start_engine: StartEngine, world: World, checkpoints: list[Path]
) -> None:
    engine, ours, found = start_engine(), TorchEngine(), []
    for folder in checkpoints:
        engine.load(folder)
        ours.load(folder)
        found.append(greedy(engine, world))
        assert num_diverging(greedy(ours, world), found[-1], CausalLM.load(folder).eval()) <= 1
    assert tokens_of(found[0]) != tokens_of(found[-1]), "steps must have changed the policy for this to mean anything"


def test_a_patch_between_checkpoints_gives_the_same_as_a_load(
    start_engine: StartEngine, world: World, checkpoints: list[Path], tmp_path: Path
) -> None:
    patches = [tmp_path / f"{version}.patch" for version in range(1, NUM_VERSIONS)]
    for version, patch in enumerate(patches, start=1):
        old, new = (checkpoints[number] / WEIGHTS_FILE for number in (version - 1, version))
        diff(old, new, patch, base_version=version - 1, policy_version=version)
    for engine in (start_engine(), TorchEngine()):
        engine.load(checkpoints[-1])
        expected = greedy(engine, world)
        engine.load(checkpoints[0])
        engine.apply(patches, checkpoints[-1])
        for one, other in zip(in_order(greedy(engine, world)), in_order(expected), strict=True):
            assert one.output_tokens.tolist() == other.output_tokens.tolist()
            assert one.output_logprobs.tobytes() == other.output_logprobs.tobytes()
            assert torch.equal(one.hidden_rows, other.hidden_rows)
