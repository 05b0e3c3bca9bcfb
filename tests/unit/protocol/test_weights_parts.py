"""Weights in several files: the same model as in one, and nothing that the index doesn't say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from protocol.errors import MalformedFile
from protocol.forward import CausalLM
from protocol.weights import ModelConfig, load_weights, write_config
from protocol.weights_file import WeightsFile
from protocol.weights_parts import INDEX_FILE, WEIGHTS_FILE, weights_files

CONFIG = ModelConfig(
    model_type="llama",
    vocab_size=11,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=4,
    max_position_embeddings=16,
)
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
NORM = "model.norm.weight"

Write = Callable[..., Path]


@pytest.fixture
def weights() -> dict[str, Tensor]:
    return CausalLM(CONFIG).weights(torch.bfloat16)


@pytest.fixture
def write(tmp_path: Path, weights: dict[str, Tensor]) -> Write:
    """A folder whose parts and index are the model's, but for what is asked to be otherwise."""

    def make(
        first: Mapping[str, Tensor] | None = None,
        second: Mapping[str, Tensor] | None = None,
        index: Mapping[str, Any] | None = None,
    ) -> Path:
        names = sorted(weights)
        parts = {FIRST: names[:4], SECOND: names[4:]}
        places = {name: file for file, names in parts.items() for name in names}
        write_config(tmp_path, CONFIG, torch.bfloat16)
        for file, changes in ((FIRST, first), (SECOND, second)):
            save_file({name: weights[name] for name in parts[file]} | dict(changes or {}), tmp_path / file)
        (tmp_path / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": places | dict(index or {})}))
        return tmp_path

    return make


def test_several_files_are_the_same_model_as_one(write: Write, weights: dict[str, Tensor]) -> None:
    folder = write()
    found = load_weights(folder)
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())
    assert weights_files(folder) == [INDEX_FILE, FIRST, SECOND]
    whole = CausalLM.of(CONFIG, weights)
    assert all(torch.equal(a, b) for a, b in zip(CausalLM.load(folder).parameters(), whole.parameters(), strict=True))
    with WeightsFile(folder, CONFIG) as file:
        file.check()
        for name, tensor in weights.items():
            assert torch.equal(file.tensor(name), tensor) and torch.equal(file.rows(name, 1, 3), tensor[1:3])


def test_one_file_goes_before_an_index(write: Write, weights: dict[str, Tensor]) -> None:
    folder = write()
    save_file({name: tensor + 1 for name, tensor in weights.items()}, folder / WEIGHTS_FILE)
    (folder / FIRST).unlink()
    assert weights_files(folder) == [WEIGHTS_FILE]
    assert torch.equal(load_weights(folder)[NORM], weights[NORM] + 1)


def _lost_part(folder: Path) -> None:
    (folder / SECOND).unlink()


def _one_part_more(folder: Path) -> None:
    (folder / "model-00003-of-00003.safetensors").write_bytes((folder / SECOND).read_bytes())


def _named_twice(folder: Path) -> None:
    text = (folder / INDEX_FILE).read_text()
    (folder / INDEX_FILE).write_text(text.replace('"weight_map": {', f'"weight_map": {{"{NORM}": "{FIRST}", '))


def _cut_short(folder: Path) -> None:
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_lost_part, f"parts of a model's weights are missing.*{SECOND}"),
        (_one_part_more, "doesn't name model-00003-of-00003"),
        (_named_twice, "names something twice"),
        (_cut_short, f"can't read weights from .*{SECOND}"),
        (lambda folder: (folder / INDEX_FILE).write_text("{}"), "can't be read.*weight_map"),
        (lambda folder: (folder / INDEX_FILE).write_text('{"weight_map": {}}'), "names no files"),
        (lambda folder: (folder / INDEX_FILE).write_text('{"weight_map": ["a"]}'), "index of weights can't be read"),
        (lambda folder: (folder / INDEX_FILE).write_bytes(b"\xff"), "index of weights can't be read"),
    ],
)
def test_files_that_are_not_what_the_index_says_are_named(
    write: Write, damage: Callable[[Path], object], told: str
) -> None:
    folder = write()
    damage(folder)
    with pytest.raises(MalformedFile, match=told):
        load_weights(folder)
    with pytest.raises(MalformedFile, match=told), WeightsFile(folder, CONFIG):
        pass


@pytest.mark.parametrize("outside", ["../weights.safetensors", "/weights.safetensors", 3, ""])
def test_an_index_names_files_of_its_folder_alone(write: Write, outside: object) -> None:
    with pytest.raises(MalformedFile, match="no files of this folder"):
        load_weights(write(index={NORM: outside}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"first": {NORM: torch.ones(8)}}, f"in two parts of .*{FIRST} has {NORM} as well"),
        ({"first": {"model.other": torch.ones(8)}}, f"tensors of no index.*{FIRST}: model.other"),
        ({"index": {NORM: FIRST}}, f"lacks tensors.*{FIRST} has no {NORM}"),
        ({"index": {"model.other": SECOND}}, f"lacks tensors.*{SECOND} has no model.other"),
    ],
)
def test_tensors_that_are_missing_too_many_or_twice_are_named(write: Write, changes: dict[str, Any], told: str) -> None:
    folder = write(**changes)
    with pytest.raises(MalformedFile, match=told):
        load_weights(folder)
    with pytest.raises(MalformedFile, match=told), WeightsFile(folder, CONFIG):
        pass


def test_an_index_of_another_model_is_refused(write: Write) -> None:
    folder = write()
    larger = CONFIG.model_copy(update={"num_hidden_layers": 2})
    with WeightsFile(folder, larger) as file, pytest.raises(MalformedFile, match="another model.*layers.1"):
        file.check()
    with pytest.raises(MalformedFile, match="another model"):
        CausalLM.of(larger, load_weights(folder))
