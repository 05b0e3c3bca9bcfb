"""The model that a cheat generates with instead of the one that it names."""

from __future__ import annotations

from pathlib import Path

import torch

from protocol.tokenizer import TOKENIZER_FILE
from protocol.weights import ModelConfig, load_weights, save_checkpoint
from testnet.cheats.wrong_model import WEIGHT_BITS, other_model
from testnet.plan import BASE_MODEL, OTHER_WEIGHTS


def test_in_place_of_the_testnets_own_it_is_the_one_trained_from_another_seed(tmp_path: Path) -> None:
    found = load_weights(other_model(BASE_MODEL, tmp_path / "other"))
    other, honest = load_weights(OTHER_WEIGHTS), load_weights(BASE_MODEL)
    assert all(torch.equal(found[name], other[name]) for name in other)
    assert not all(torch.equal(found[name], honest[name]) for name in honest)


def test_in_place_of_any_other_it_has_fewer_bits(tmp_path: Path) -> None:
    shape = ModelConfig.load(BASE_MODEL).model_copy(update={"num_hidden_layers": 1})
    weights = {name: torch.randn(size) for name, size in shape.weight_shapes().items()}
    folder = tmp_path / "model"
    save_checkpoint(folder, shape, weights, [BASE_MODEL / TOKENIZER_FILE])
    out = other_model(folder, tmp_path / "other")
    found, honest = load_weights(out), load_weights(folder)
    assert ModelConfig.load(out) == shape and (out / TOKENIZER_FILE).is_file()
    matrix = "model.layers.0.mlp.up_proj.weight"
    assert max(len(row.unique()) for row in found[matrix]) < 2**WEIGHT_BITS
    assert torch.allclose(found[matrix].float(), honest[matrix].float(), atol=1.0)
    assert torch.equal(found["model.norm.weight"], honest["model.norm.weight"])
