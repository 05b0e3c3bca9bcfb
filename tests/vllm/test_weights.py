"""New weights go into the running engine: what follows is theirs alone, and a load that failed is never used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from protocol.engines.base import Completion, generate
from protocol.engines.torch import TorchEngine
from protocol.engines.vllm import extension
from protocol.errors import MalformedFile, ProofpoolError
from protocol.forward import CausalLM
from protocol.weights import ModelConfig, load_weights, save_checkpoint
from protocol.weights_parts import WEIGHTS_FILE
from tests.attacks.pools import tiny
from tests.unit.verifier.verifier_world import World
from tests.vllm.conftest import StartEngine
from tests.vllm.work import in_order, num_diverging, task_requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def world() -> World:
    torch.set_num_threads(1)
    return tiny().world


def tokens_of(completions: list[Completion]) -> list[list[int]]:
    return [c.output_tokens.tolist() for c in in_order(completions)]


def by_torch(folder: Path, world: World) -> list[Completion]:
    engine = TorchEngine()
    engine.load(folder)
    return list(generate(engine, task_requests(world, 0)))


def test_each_version_gives_its_own_tokens_without_a_restart(
    start_engine: StartEngine, world: World, tiny_versions: tuple[Path, Path]
) -> None:
    engine, requests, started = start_engine(), task_requests(world, 0), []
    expected = {folder: by_torch(folder, world) for folder in tiny_versions}
    assert tokens_of(expected[tiny_versions[0]]) != tokens_of(expected[tiny_versions[1]])
    for folder in (*tiny_versions, *tiny_versions):
        engine.load(folder)
        started.append(engine._llm)
        found = list(generate(engine, requests))
        assert num_diverging(expected[folder], found, CausalLM.load(folder).eval()) <= 1
    assert len(set(map(id, started))) == 1


def test_a_model_of_another_shape_is_started_anew(
    start_engine: StartEngine, world: World, tiny_versions: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, wanted = tiny_versions[0], ModelConfig.load(tiny_versions[0]).num_hidden_layers - 1
    config = ModelConfig.load(folder).model_copy(update={"num_hidden_layers": wanted})
    weights = {name: w for name, w in load_weights(folder).items() if name in config.weight_shapes()}
    save_checkpoint(tmp_path / "smaller", config, weights)
    engine = start_engine()
    engine.load(folder)
    engine.load(tmp_path / "smaller")
    found = list(generate(engine, task_requests(world, 0)))
    model = CausalLM.load(tmp_path / "smaller").eval()
    assert num_diverging(by_torch(tmp_path / "smaller", world), found, model) <= 1


def test_half_an_update_is_noticed_and_nothing_is_generated_with_it(
    start_engine: StartEngine, world: World, tiny_versions: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What vLLM alone would do: the tied head goes on with the old embedding."""
    engine = start_engine()
    engine.load(tiny_versions[0])
    with monkeypatch.context() as patched, pytest.raises(ProofpoolError, match="doesn't compute with the weights"):
        patched.setattr(extension, "_repack_plain_linears", lambda model: None)
        engine.load(tiny_versions[1])
    with pytest.raises(ProofpoolError, match="no weights"):
        engine.add(task_requests(world, 0))
    engine.load(tiny_versions[1])
    assert tokens_of(list(generate(engine, task_requests(world, 0)))) == tokens_of(by_torch(tiny_versions[1], world))


def test_damaged_and_faulty_weights_are_errors(
    start_engine: StartEngine, world: World, tiny_versions: tuple[Path, Path], tmp_path: Path
) -> None:
    engine, folder = start_engine(), tmp_path / "damaged"
    shutil.copytree(tiny_versions[0], folder)
    (folder / WEIGHTS_FILE).write_bytes(b"nothing")
    with pytest.raises(MalformedFile):
        engine.load(folder)
    weights = load_weights(tiny_versions[0])
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], float("nan"))
    save_checkpoint(tmp_path / "faulty", ModelConfig.load(tiny_versions[0]), weights)
    with pytest.raises(ProofpoolError, match="finite"):
        engine.load(tmp_path / "faulty")
    engine.load(tiny_versions[0])
    assert len(list(generate(engine, task_requests(world, 0)))) == len(task_requests(world, 0))
