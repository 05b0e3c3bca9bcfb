"""The pools that are lied to: model × precision.

In: a model's name and a precision. Out: an `Arena`. Run: `python -m tests.attacks --model tiny --dtype bfloat16`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from protocol.forward import CausalLM
from protocol.rules import Rules, SamplingRules, Thresholds
from protocol.tokenizer import Tokenizer
from testnet.task import MAX_NEW_TOKENS, testnet_environment
from tests.attacks.arena import RIGHT, Arena
from tests.attacks.cache import Cache, default_cache
from tests.attacks.models import MODELS
from tests.models.smollm2 import smollm2
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules
from tests.worlds.smollm2 import make_smollm2_world
from verifier.thresholds import DEFAULT, names, thresholds_of

DTYPES = ("float32", "bfloat16")
SMOLLM2_TOKENS = 32

HIDDEN = {
    ("tiny", "bfloat16"): frozenset(
        {"int4-then-prefill", "temperature-0.9", "temperature-1.1"}
        | {f"tenth-{name}" for name in ("int4", "wrong-seed", "temperature-0.9")}
    ),
    ("smollm2", "bfloat16"): frozenset({"tenth-temperature-0.9", "tenth-hidden-prompt-proved"}),
}
"""Of each pool, what its noise hides, wholly or in part: too few tokens differ to tell (docs/verification.md)."""


def tiny(dtype: str = "float32", num_tasks: int = 4, cache: Cache | None = None, num_groups: int = 8) -> Arena:
    """The testnet's model and task: 64 rollouts a task, about 1,700 tokens."""
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    sampling = SamplingRules(max_new_tokens=MAX_NEW_TOKENS)
    rules = make_rules(environment, sampling=sampling, groups_per_task=num_groups, thresholds=limits("tiny", dtype))
    world = World(rules, environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())
    return Arena(
        f"tiny, {dtype}",
        world,
        MODELS,
        cache or Cache(None),
        num_tasks,
        num_tasks,
        honest=_honest(dtype),
        hides=HIDDEN.get(("tiny", dtype), frozenset()),
    )


def smollm2_arena(dtype: str = "float32", num_tasks: int = 2, cache: Cache | None = None) -> Arena:
    """SmolLM2-135M-Instruct: 64 rollouts a task, 32 tokens each but for the few that end before."""
    world = make_smollm2_world(
        smollm2(),
        groups_per_task=8,
        sampling=SamplingRules(max_new_tokens=SMOLLM2_TOKENS),
        thresholds=limits("smollm2", dtype),
    )
    return Arena(
        f"SmolLM2-135M, {dtype}",
        world,
        MODELS,
        cache or Cache(None),
        num_tasks,
        num_generated=1,
        honest=_honest(dtype),
        left_out=frozenset({"honest-batch-1"}),
        hides=HIDDEN.get(("smollm2", dtype), frozenset()),
    )


MEASURED = {"tiny": "testnet", "smollm2": "smollm2-135m-instruct"}
"""What the models are called by threshold files."""


def limits_name(model: str, dtype: str) -> str:
    """The measured ones of this model and precision, or the defaults where nobody has measured."""
    name = f"{MEASURED[model]}.{dtype}"
    return name if name in names() else DEFAULT


def limits(model: str, dtype: str) -> Thresholds:
    return thresholds_of(limits_name(model, dtype))


def judged_by(arena: Arena, thresholds: Thresholds) -> Arena:
    """The same pool with other limits."""
    document = arena.rules.model_dump(mode="json") | {"thresholds": thresholds.model_dump(mode="json")}
    return replace(arena, world=replace(arena.world, rules=Rules.model_validate(document)))


def _honest(dtype: str) -> str:
    return RIGHT if dtype == "float32" else dtype


ARENAS: dict[str, Callable[..., Arena]] = {"tiny": tiny, "smollm2": smollm2_arena}


def arena(model: str, dtype: str, num_tasks: int | None = None, cache: Cache | None = None) -> Arena:
    wanted = {} if num_tasks is None else {"num_tasks": num_tasks}
    return ARENAS[model](dtype, cache=cache or default_cache(), **wanted)
