"""The pools that are lied to: model × precision.

In: a model's name and a precision. Out: an `Arena`. Run: `python -m tests.attacks --model tiny --dtype bfloat16`.
"""

from __future__ import annotations

from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.tokenizer import Tokenizer
from testnet.task import MAX_NEW_TOKENS, testnet_environment
from tests.attacks.arena import RIGHT, Arena
from tests.attacks.cache import Cache, default_cache
from tests.attacks.models import MODELS
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules

DTYPES = ("float32", "bfloat16")


def tiny(dtype: str = "float32", num_tasks: int = 4, cache: Cache | None = None, num_groups: int = 8) -> Arena:
    """The testnet's model and task: 64 rollouts a task, about 1,700 tokens."""
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    sampling = SamplingRules(max_new_tokens=MAX_NEW_TOKENS)
    rules = make_rules(environment, sampling=sampling, groups_per_task=num_groups)
    world = World(rules, environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())
    return Arena(f"tiny, {dtype}", world, MODELS, cache or Cache(None), num_tasks, honest=_honest(dtype))


def _honest(dtype: str) -> str:
    return RIGHT if dtype == "float32" else dtype


ARENAS = {"tiny": tiny}


def arena(model: str, dtype: str, num_tasks: int | None = None, cache: Cache | None = None) -> Arena:
    wanted = {} if num_tasks is None else {"num_tasks": num_tasks}
    return ARENAS[model](dtype, cache=cache or default_cache(), **wanted)
