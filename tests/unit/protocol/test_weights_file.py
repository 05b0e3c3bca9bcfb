"""Weights a tensor at a time: the same bytes as all at once, and parts of them read back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from protocol.errors import MalformedFile
from protocol.weights import CONFIG_FILE, ModelConfig, save_checkpoint
from protocol.weights_file import WeightsFile, write_weights
from protocol.weights_parts import WEIGHTS_FILE

CONFIG = ModelConfig.model_validate(
    {
        "model_type": "qwen2",
        "vocab_size": 7,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 11,  # "layers.10" sorts before "layers.2"
        "num_attention_heads": 2,
        "max_position_embeddings": 16,
    }
)


@pytest.fixture
def weights() -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=source) for name, shape in CONFIG.weight_shapes().items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_after_the_other_is_the_same_file_as_all_at_once(
    weights: dict[str, Tensor], tmp_path: Path, dtype: torch.dtype
) -> None:
    save_checkpoint(tmp_path / "whole", CONFIG, {name: w.to(dtype) for name, w in weights.items()})
    write_weights(tmp_path / "parts", CONFIG, dtype, (weights[name] for name in sorted(weights)))
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_wrong_tensor_leaves_no_file(weights: dict[str, Tensor], tmp_path: Path) -> None:
    tensors = [weights[name] for name in sorted(weights)]
    with pytest.raises(MalformedFile, match="another model"):
        write_weights(tmp_path, CONFIG, torch.float32, [*tensors[1:], tensors[0]])
    with pytest.raises(ValueError, match="shorter"):
        write_weights(tmp_path, CONFIG, torch.float32, tensors[:-1])
    assert not (tmp_path / WEIGHTS_FILE).exists()


def test_rows_are_read_by_themselves(weights: dict[str, Tensor], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model", CONFIG, weights)
    with WeightsFile(tmp_path / "model", CONFIG) as file:
        assert torch.equal(file.rows("model.embed_tokens.weight", 2, 5), weights["model.embed_tokens.weight"][2:5])
        assert file.rows("model.norm.weight", 8, 8).shape == (0,)


@pytest.mark.parametrize("damage", [None, b"", b"\xff" * 100])
def test_what_is_no_weights_file_is_named(tmp_path: Path, damage: bytes | None) -> None:
    if damage is not None:
        (tmp_path / WEIGHTS_FILE).write_bytes(damage)
    with pytest.raises(MalformedFile, match="can't read weights"), WeightsFile(tmp_path, CONFIG):
        pass


def test_another_models_weights_are_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model", CONFIG, weights)
    other = CONFIG.model_copy(update={"hidden_size": 16, "tie_word_embeddings": True, "num_hidden_layers": 12})
    with WeightsFile(tmp_path / "model", other) as file:
        for name in ("model.norm.weight", "model.layers.11.mlp.up_proj.weight"):
            with pytest.raises(MalformedFile, match="another model"):
                file.rows(name, 0, 1)
