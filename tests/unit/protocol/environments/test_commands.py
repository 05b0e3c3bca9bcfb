"""`proofpool environments`: what there is, what is asked, what an answer is worth."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from protocol.cli import run
from protocol.documents import shape_of
from testnet.base_model.vocabulary import make_tokenizer

CONFIG = 'dataset = "chain_sum"\nanswer_marker = "#"\nlength_suffix = " {target}"\n'


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a tokenizer."""
    folder = tmp_path / "model"
    folder.mkdir()
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"eos_token_id": 1}')
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "sums.toml"
    path.write_text(CONFIG)
    return path


def on(*words: object) -> list[str]:
    return ["environments", *map(str, words)]


def test_the_list_names_each_and_who_brings_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(on("list", "--json")) == 0
    listed = shape_of("environments list").validate_json(capsys.readouterr().out)
    assert {"reasoning_gym", "math", "code"} <= {one.name for one in listed.environments}
    assert {one.package for one in listed.environments if one.name == "math"} == {"proofpool"}
    assert run(on("list")) == 0
    assert "reasoning_gym    proofpool" in capsys.readouterr().out


def test_a_problem_is_shown_as_a_model_sees_it(model: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(on("show", "reasoning_gym", "--config", config, "--base-model", model, "--problem", 3)) == 0
    first = capsys.readouterr()
    assert "chain_sum:3, reasoning_gym/chain_sum, 3 of 32768" in first.err
    words = on(
        "show", "reasoning_gym", "--config", config, "--base-model", model, "--problem", 3, "--target-length", 25
    )
    assert run([*words, "--json"]) == 0
    shown = shape_of("environments show").validate_json(capsys.readouterr().out)
    assert shown.prompt == first.out.rstrip("\n") + " 25"
    assert shown.difficulty.keys() == {"num_digits", "num_terms"}


def test_an_answer_is_tried(
    model: Path, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = on("try", "reasoning_gym", "--config", config, "--base-model", model)
    monkeypatch.setattr("sys.stdin", io.StringIO("I think it is 5"))
    assert run(words) == 0
    assert capsys.readouterr().out.splitlines() == ["answer  none found", "score   0", "reward  0"]
    monkeypatch.setattr("sys.stdin", io.StringIO("<think>#1</think># 12"))
    assert run([*words, "--json"]) == 0
    tried = shape_of("environments try").validate_json(capsys.readouterr().out)
    assert (tried.answer, tried.certain, tried.problem_id) == ("12", True, "chain_sum:0")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("wrong.toml", "dataset = ", "can't be read"),
        ("list.json", "[]", "has no configuration"),
        ("rules.json", json.dumps({"environment": {"name": "math", "config": {}}}), "of another environment"),
        ("unknown.toml", 'dataset = "no_such"', "no_such"),
    ],
)
def test_a_configuration_that_is_none_is_named(
    model: Path, tmp_path: Path, name: str, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert run(on("show", "reasoning_gym", "--config", path, "--base-model", model)) != 0
    assert says in capsys.readouterr().err


def test_rules_are_read_as_well(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"environment": {"name": "reasoning_gym", "config": {"dataset": "gcd"}}}))
    assert run(on("show", "reasoning_gym", "--config", path, "--base-model", model, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["problem_id"] == "gcd:0"
