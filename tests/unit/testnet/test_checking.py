"""A plan for another model or task: what can be asked for, and what is refused before anything is made."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.cli import run
from protocol.config import load_config
from protocol.errors import ConfigError, ProofpoolError, UsageError
from protocol.weights import CONFIG_FILE
from protocol.weights_parts import WEIGHTS_FILE
from testnet.checking import check_task
from testnet.plan import BASE_MODEL, Plan
from testnet.rules import GROUP_SIZE
from testnet.rules import testnet_rules as make_rules
from testnet.task import ENVIRONMENT_CONFIG, MAX_NEW_TOKENS
from verifier.thresholds import default_thresholds, thresholds_of

PRODUCTS = {"name": "reasoning_gym", "config": {"dataset": "products", "num_problems": 2_000}}
FEW = {"dataset": "chain_sum", "parameters": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}
OTHER_LIMITS = "smollm2-135m-instruct.float32"

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "smollm2"

WriteRules = Callable[[dict[str, Any]], Path]


@pytest.fixture
def write_rules(tmp_path: Path) -> WriteRules:
    def write(document: dict[str, Any]) -> Path:
        file = tmp_path / "rules.json"
        file.write_text(json.dumps(document))
        return file

    return write


@pytest.fixture
def other_shape(tmp_path: Path) -> Path:
    """A model that no limits were measured for."""
    folder = shutil.copytree(BASE_MODEL, tmp_path / "model")
    config = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps(config | {"rms_norm_eps": 1e-4}))
    return folder


def test_without_a_document_it_is_the_testnets_own_task() -> None:
    rules = check_task(Plan())
    assert (rules.environment.config, rules.sampling.max_new_tokens) == (ENVIRONMENT_CONFIG, MAX_NEW_TOKENS)
    assert rules.thresholds == default_thresholds()
    assert Plan().is_own_task


def test_what_a_document_says_holds_and_the_rest_is_the_testnets(write_rules: WriteRules) -> None:
    file = write_rules({"environment": PRODUCTS, "sampling": {"max_new_tokens": 9}, "groups_per_task": 3})
    plan = Plan(rules=file)
    rules = check_task(plan)
    assert rules.environment.config == PRODUCTS["config"]
    assert (rules.sampling.max_new_tokens, rules.groups_per_task, rules.group_size) == (9, 3, GROUP_SIZE)
    assert rules.thresholds == default_thresholds()
    assert rules.rules_hash != check_task(Plan()).rules_hash
    assert not plan.is_own_task


def test_limits_are_the_models_unless_somebody_names_others(write_rules: WriteRules, other_shape: Path) -> None:
    own, named = default_thresholds(), thresholds_of(OTHER_LIMITS)
    assert make_rules(BASE_MODEL).thresholds == own != named
    assert make_rules(other_shape, thresholds=OTHER_LIMITS).thresholds == named
    said = write_rules({"thresholds": json.loads(named.model_dump_json())})
    assert make_rules(other_shape, said).thresholds == named
    file = other_shape / "limits.json"
    file.write_text(json.dumps({"limits": json.loads(named.model_dump_json())}))
    assert make_rules(other_shape, thresholds=str(file)).thresholds == named
    with pytest.raises(UsageError, match="two sets of limits"):
        make_rules(other_shape, said, OTHER_LIMITS)


def test_limits_are_for_every_version_of_a_model(tmp_path: Path) -> None:
    trained = shutil.copytree(BASE_MODEL, tmp_path / "model")
    shutil.copyfile(trained / "other.safetensors", trained / WEIGHTS_FILE)
    assert make_rules(trained).thresholds == default_thresholds()


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"environment": {"name": "chess"}}, "no environment is called"),
        ({"environment": {"name": "reasoning_gym", "config": {"dataset": "nothing"}}}, "can't make 'nothing'"),
        ({"environment": {"name": "reasoning_gym", "config": {"dataset": "countdown"}}}, "runs answers as code"),
        ({"group_size": "many"}, "the rules can't be used"),
        ({"sampling": {"max_new_tokens": 1 << 20}}, "no room for such completions"),
        ({"environment": {"name": "reasoning_gym", "config": FEW}}, "0 of 1024 were found"),
    ],
)
def test_a_task_that_can_not_be_is_refused_before_there_is_a_folder(
    document: dict[str, Any],
    told: str,
    write_rules: WriteRules,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--rules", str(write_rules(document)), "--run-dir", str(tmp_path / "run")]
    assert run(["testnet", "up", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_model_that_can_not_be_is_refused(tmp_path: Path, other_shape: Path) -> None:
    with pytest.raises(UsageError, match="no such model folder"):
        check_task(Plan(base_model=tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="no limits were measured") as error:
        check_task(Plan(base_model=other_shape))
    assert "verifier calibrate" in error.value.todo and OTHER_LIMITS in error.value.why
    (other_shape / WEIGHTS_FILE).unlink()
    with pytest.raises(ConfigError, match="no weights"):
        check_task(Plan(base_model=other_shape))


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"recipe": {"learning_rate": -1}}, "recipe.learning_rate"),
        ({"recipe": {"objective": {"clip": {"gamma": 1}}}}, "recipe.objective.clip.gamma"),
        ({"scale": {"device": "abacus"}}, "scale.device"),
        ({"evaluation": {"num_samples": 0}}, "evaluation.num_samples"),
    ],
)
def test_what_the_trainer_would_refuse_is_refused_at_once(tables: dict[str, Any], key: str) -> None:
    with pytest.raises(ProofpoolError) as error:
        check_task(Plan.model_validate(tables))
    assert f"`{key}`" in error.value.what


def test_a_plan_may_be_a_file_and_flags_override_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_rules: WriteRules
) -> None:
    asked: list[Plan] = []
    monkeypatch.setattr("testnet.up.run_testnet", lambda plan, *_, **__: asked.append(plan))
    file = tmp_path / "plan.toml"
    file.write_text("num_steps = 5\ncheats = []\n[evaluation]\nevaluate_every = 2\n")
    rules = write_rules({})
    assert run(["testnet", "up", "--config", str(file)]) == 0
    assert run(["testnet", "up", "--config", str(file), "--steps", "7", "--rules", str(rules)]) == 0
    assert run(["testnet", "up"]) == 0
    assert [plan.num_steps for plan in asked] == [5, 7, 12]
    assert [plan.cheats for plan in asked] == [(), (), ("wrong-model",)]
    assert [plan.rules for plan in asked] == [None, rules, None]
    assert asked[0].evaluation == {"evaluate_every": 2}


def test_the_example_in_the_docs_is_the_one_that_ships() -> None:
    """It fits together on any model, but for its limits."""
    plan = load_config(Plan, "testnet", EXAMPLE / "plan.toml", {})
    rules = check_task(plan.model_copy(update={"rules": EXAMPLE / "rules.json"}))
    assert (rules.environment.config["num_problems"], plan.evaluation["evaluate_every"]) == (140, 4)
    page = (ROOT / "docs" / "testnet.md").read_text()
    for name in ("rules.json", "plan.toml"):
        assert textwrap.indent((EXAMPLE / name).read_text(), "    ") in page


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"recipe": {"lora": {"rank": 0}}}, r"recipe\.lora\.rank"),
        ({"recipe": {"betas": [0.1, 2]}}, r"recipe\.betas\[1\]"),
        ({"scale": {"device": "tpu"}}, r"scale\.device"),
    ],
)
def test_a_wrong_setting_of_the_trainer_is_named_as_the_plan_has_it(table: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"wrong at `{key}`"):
        check_task(Plan.model_validate(table))
