"""The small honest world that checks, verifier and worker are tested in, and models of random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from protocol.engines.base import Completion
from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.tokenizer import Tokenizer
from protocol.weights import ModelConfig, load_weights, save_checkpoint
from protocol.weights_parts import INDEX_FILE
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer
from testnet.task import testnet_environment
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules


@pytest.fixture(scope="session")
def world() -> World:
    """The testnet's base model and task."""
    torch.set_num_threads(1)
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    return World(make_rules(environment), environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())


@pytest.fixture(scope="session")
def honest_completions(world: World) -> list[Completion]:
    return world.completions()


@pytest.fixture
def honest(world: World, honest_completions: list[Completion]) -> list[Rollout]:
    """An honest submission's rows; tests alter what they like."""
    return world.rollouts(honest_completions)


@pytest.fixture(scope="session")
def other_model(world: World) -> CausalLM:
    """Another checkpoint of the same architecture, as able as the right one."""
    return CausalLM.of(world.model.config, load_weights(BASE_MODEL / "other.safetensors")).eval()


@pytest.fixture(scope="session")
def other_folder(other_model: CausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other") / "model"
    save_checkpoint(folder, other_model.config, other_model.weights(), [BASE_MODEL / "tokenizer.json"])
    return folder


@pytest.fixture(scope="session")
def make_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A Llama of 2 layers x 128 with weights drawn from the given seed: its completions differ wildly in length."""

    def make(seed: int) -> Path:
        backend = make_tokenizer()
        config = ModelConfig(
            model_type="llama",
            vocab_size=backend.get_vocab_size(),
            hidden_size=128,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=128,
            eos_token_id=EOS_ID,
            pad_token_id=PAD_ID,
        )
        source = torch.Generator().manual_seed(seed)
        weights = {
            name: torch.ones(shape) if "norm" in name else torch.randn(shape, generator=source) * 0.15
            for name, shape in config.weight_shapes().items()
        }
        home = tmp_path_factory.mktemp("model")
        (home / "tokenizer.json").write_text(backend.to_str())
        save_checkpoint(home / "folder", config, weights, companions=[home / "tokenizer.json"])
        return home / "folder"

    return make


@pytest.fixture
def in_parts(tmp_path: Path) -> Callable[[Path], Path]:
    """A model's folder anew, its tensors dealt over three files beside an index."""

    def make(folder: Path) -> Path:
        out = tmp_path / "in_parts"
        out.mkdir()
        for name in ("config.json", "tokenizer.json"):
            (out / name).write_bytes((folder / name).read_bytes())
        weights, places = load_weights(folder), dict[str, str]()
        for number in range(3):
            file = f"model-{number + 1:05}-of-00003.safetensors"
            part = {name: tensor for index, (name, tensor) in enumerate(weights.items()) if index % 3 == number}
            save_file(part, out / file)
            places |= dict.fromkeys(part, file)
        (out / INDEX_FILE).write_text(json.dumps({"weight_map": places}))
        return out

    return make
