"""Ready configurations: each is written, loads, says what a run would be, and fits the pool that it is for."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from coordinator.config import CoordinatorConfig
from protocol.cli import run
from protocol.config import load_config
from protocol.errors import UsageError
from protocol.rules import LengthRules, Rules, SamplingRules
from testnet.plan import RECIPE, Plan
from testnet.rules import GROUP_SIZE, MAX_NEW_TOKENS
from trainer.config import TrainerConfig
from trainer.dry_run import dry_run
from trainer.learner import RecipeConfig
from trainer.recipe_files import FOLDER, recipe_names, write_recipe
from trainer.samples import split_groups

NAMES = ["intellect2-32b", "smollm2", "tiny"]
SMOLLM2 = {
    "model_type": "llama",
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
QWQ_32B = {
    "model_type": "qwen2",
    "vocab_size": 152_064,
    "hidden_size": 5120,
    "intermediate_size": 27_648,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40_960,
}
NUM_PARAMETERS = {"smollm2": 134_515_008, "intellect2-32b": 32_763_876_352}


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load_one(name: str) -> TrainerConfig:
        file = next(path for path in write_recipe(name, tmp_path / name) if path.name == "trainer.toml")
        return load_config(TrainerConfig, "trainer", file, environment={})

    return load_one


def pool_of(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name / "pool.toml").read_text())


def test_there_are_three() -> None:
    assert recipe_names() == NAMES


@pytest.mark.parametrize(("name", "shape"), [("smollm2", SMOLLM2), ("intellect2-32b", QWQ_32B)])
def test_each_loads_and_says_what_a_run_would_be(load: Any, tmp_path: Path, name: str, shape: dict[str, Any]) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps(shape))
    config = load(name).model_copy(update={"base_model": base, "data_dir": tmp_path / "data"})
    found = dry_run(config, num_ranks=1)
    assert found.memory.num_parameters == NUM_PARAMETERS[name]
    assert not found.pull.reached and "doesn't answer" in found.pull.why
    assert not (tmp_path / "data").exists()


def test_the_papers_recipe_is_the_designs(load: Any) -> None:
    recipe, scale = load("intellect2-32b").recipe, load_scale()
    assert (recipe.learning_rate, recipe.betas, recipe.weight_decay) == (3e-7, (0.9, 0.99), 0.01)
    assert (recipe.warmup_steps, recipe.grad_norm_clip, recipe.optimizer_steps) == (25, 0.1, 8)
    assert recipe.max_tokens == 32_768 and recipe.advantage_scale == "std"
    assert (recipe.objective.clip.least, recipe.objective.clip.most, recipe.objective.clip.delta) == (0.8, 1.2, 4.0)
    assert scale["compute_dtype"] == "bfloat16"
    assert (recipe.objective.kl_coefficient, recipe.objective.entropy_coefficient) == (0.001, 1e-4)
    plain = recipe.objective.model_copy(update={"kl_coefficient": 0.0, "entropy_coefficient": 0.0})
    assert recipe.model_copy(update={"objective": plain}) == RecipeConfig(), (
        "but for these the defaults are the paper's"
    )
    pool = pool_of("intellect2-32b")
    groups, size = pool["coordinator"]["groups_per_step"], pool["rules"]["group_size"]
    assert (groups, size, pool["pool"]["max_async"]) == (256, 16, 2)
    assert {len(part) for part in split_groups(groups * size, size, recipe.optimizer_steps)} == {512}
    assert pool["rules"]["lengths"]["penalty_per_token"] == 0.0003


def load_scale() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((FOLDER / "intellect2-32b" / "trainer.toml").read_text())["scale"]
    return found


def test_the_tiny_recipe_is_the_testnets(load: Any) -> None:
    assert load("tiny").recipe == RecipeConfig.model_validate(RECIPE)
    pool, plan = pool_of("tiny"), Plan()
    assert pool["coordinator"]["groups_per_step"] == plan.groups_per_step
    assert pool["pool"]["max_async"] == plan.max_async
    assert (pool["rules"]["group_size"], pool["rules"]["sampling"]["max_new_tokens"]) == (GROUP_SIZE, MAX_NEW_TOKENS)


@pytest.mark.parametrize("name", NAMES)
def test_a_pools_settings_exist_and_fit_the_recipe(load: Any, name: str) -> None:
    pool, recipe = pool_of(name), load(name).recipe
    rules = pool["rules"]
    assert set(pool) == {"coordinator", "pool", "rules"}
    assert set(pool["coordinator"]) <= set(CoordinatorConfig.model_fields)
    assert set(rules) <= set(Rules.model_fields)
    assert SamplingRules.model_validate(rules["sampling"]).max_new_tokens <= recipe.max_tokens
    LengthRules.model_validate(rules.get("lengths", {}))
    assert pool["coordinator"]["groups_per_step"] % recipe.optimizer_steps == 0


def test_nothing_is_written_over_and_other_names_are_refused(tmp_path: Path) -> None:
    write_recipe("tiny", tmp_path)
    before = (tmp_path / "trainer.toml").read_bytes()
    with pytest.raises(UsageError, match="there already"):
        write_recipe("smollm2", tmp_path)
    assert (tmp_path / "trainer.toml").read_bytes() == before
    with pytest.raises(UsageError, match="no such recipe"):
        write_recipe("../tiny", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_command_prints_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trainer", "init", "--recipe", "smollm2", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "trainer.toml"), str(tmp_path / "pool.toml")]
    assert run(["trainer", "init", "--recipe", "huge"]) == 2
