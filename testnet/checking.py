"""Whether a plan's model, task, limits and recipe fit together, before anything of it is made or started.

In: a plan. Out: nothing, or the error that a role would have ended with minutes later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from protocol.environments.registry import environment_of
from protocol.errors import ConfigError, UsageError
from protocol.rules import Rules
from protocol.setting_names import key_of, names_of
from protocol.tokenizer import Tokenizer
from protocol.weights import ModelConfig
from protocol.weights_file import WeightsFile
from protocol.weights_parts import INDEX_FILE, WEIGHTS_FILE
from testnet.plan import Plan
from testnet.rules import testnet_rules
from trainer.held_back import EvaluationConfig
from trainer.learner import RecipeConfig
from trainer.ranks import ScaleConfig

Table = TypeVar("Table", bound=BaseModel)


def check_task(plan: Plan) -> Rules:
    """The pool's rules. Raises UsageError, ConfigError or MalformedFile where something of the plan can't be used."""
    if not plan.base_model.is_dir():
        raise UsageError("there is no such model folder", f"{plan.base_model}", "name a folder in Hugging Face format")
    model = ModelConfig.load(plan.base_model)
    if not any((plan.base_model / name).exists() for name in (WEIGHTS_FILE, INDEX_FILE)):
        why = f"{plan.base_model} has neither {WEIGHTS_FILE} nor {INDEX_FILE}"
        raise ConfigError("the base model has no weights", why, "put its weights there, as safetensors")
    with WeightsFile(plan.base_model, model) as weights:
        weights.check()
    _check_table("recipe", plan.recipe, RecipeConfig)
    _check_table("scale", plan.scale, ScaleConfig)
    evaluation = _check_table("evaluation", plan.evaluation, EvaluationConfig)
    rules = testnet_rules(plan.base_model, plan.rules, plan.thresholds)
    if rules.sampling.max_new_tokens >= model.max_position_embeddings:
        why = f"max_new_tokens {rules.sampling.max_new_tokens}, its positions end at {model.max_position_embeddings}"
        raise ConfigError("the model has no room for such completions", why, "set fewer in the rules' sampling")
    num_evaluated = evaluation.num_held_back if evaluation.evaluate_every else 0
    environment = environment_of(rules.environment, Tokenizer.load(plan.base_model))
    environment.held_back(max(plan.num_held_back, num_evaluated))
    return rules


def _check_table(name: str, table: Mapping[str, Any], shape: type[Table]) -> Table:
    try:
        return shape.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = key_of((name, *names_of(shape, first["loc"])))
        why = f"{first['msg']} (got {first['input']!r})"
        raise ConfigError(f"the testnet's plan is wrong at `{key}`", why, "docs/trainer.md has all settings") from error
