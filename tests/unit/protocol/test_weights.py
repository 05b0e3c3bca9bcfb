"""Model folders: what is written is read back, and what doesn't fit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from protocol.errors import ConfigError, MalformedFile
from protocol.forward import CausalLM
from protocol.weights import ModelConfig, check_weights, load_weights, save_checkpoint

SMALL = {
    "model_type": "llama",
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "tie_word_embeddings": True,
}


def make_config(**changes: object) -> ModelConfig:
    return ModelConfig.model_validate({**SMALL, **changes})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_comes_back_bit_by_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    model = CausalLM(make_config())
    weights = model.weights(dtype)
    save_checkpoint(tmp_path / "a", model.config, weights)
    assert ModelConfig.load(tmp_path / "a") == model.config
    back = load_weights(tmp_path / "a")
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) and back[name].dtype == dtype for name in weights)


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    model = CausalLM(make_config())
    weights = model.weights()
    save_checkpoint(tmp_path / "a", model.config, weights)
    save_checkpoint(tmp_path / "b", model.config, dict(reversed(weights.items())))
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_companions_are_copied(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    model = CausalLM(make_config())
    save_checkpoint(tmp_path / "a", model.config, model.weights(), [tmp_path / "tokenizer.json"])
    assert (tmp_path / "a/tokenizer.json").read_text() == "{}"


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    model = CausalLM(make_config())
    with pytest.raises(FileNotFoundError):
        save_checkpoint(tmp_path / "a", model.config, model.weights(), [tmp_path / "missing.json"])
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    model = CausalLM(make_config())
    save_checkpoint(tmp_path / "a", model.config, model.weights())
    with pytest.raises(FileExistsError):
        save_checkpoint(tmp_path / "a", model.config, model.weights())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "llama"),
        ({"hidden_act": "gelu"}, "activation"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "RoPE"),
        ({"mlp_bias": True}, "MLP"),
        ({"use_sliding_window": True}, "sliding"),
        ({"num_key_value_heads": 3}, "share"),
        ({"vocab_size": -1}, "greater"),
    ],
)
def test_an_unsupported_model_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SMALL, **changes}))
    with pytest.raises(ConfigError, match=message):
        ModelConfig.load(tmp_path)


def test_rope_theta_is_found_in_either_place() -> None:
    assert make_config(rope_theta=5e5).rope_theta == 5e5
    assert make_config(rope_parameters={"rope_type": "default", "rope_theta": 5e5}).rope_theta == 5e5


def test_weights_of_another_model_are_refused() -> None:
    model = CausalLM(make_config())
    check_weights(model.config, model.weights())
    missing = {name: tensor for name, tensor in model.weights().items() if "q_proj" not in name}
    wrong_shape = model.weights() | {"model.norm.weight": torch.ones(9)}
    integers = model.weights() | {"model.norm.weight": torch.ones(8, dtype=torch.int8)}
    for weights in (missing, wrong_shape, integers):
        with pytest.raises(MalformedFile):
            check_weights(model.config, weights)


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, (2**40).to_bytes(8, "little") + b"{}"])
def test_bytes_that_are_no_weights_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(MalformedFile):
        load_weights(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": [1]},
        {"rope_scaling": "yarn"},
        {"hidden_size": "8"},
        {"num_attention_heads": None},
        {"num_attention_heads": [2]},
        {"rms_norm_eps": float("inf")},
    ],
)
def test_a_config_of_other_types_is_refused_by_name(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL | change))
    with pytest.raises(ConfigError, match="can't use the model"):
        ModelConfig.load(tmp_path)
