"""Environments by name: the built-in ones, and any that another package registers.

In: `EnvironmentRules.name` and `.config`. Out: a loaded `Environment`. A third party's package adds
one with an entry point in the group `proofpool.environments` that names a
`load(config, tokenizer) -> Environment`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from protocol.environments.base import Environment
from protocol.errors import ConfigError
from protocol.rules import EnvironmentRules
from protocol.tokenizer import Tokenizer

Loader = Callable[[dict[str, Any], Tokenizer], Environment]

ENTRY_POINT_GROUP = "proofpool.environments"
BUILT_IN = {
    "code": "protocol.environments.code",
    "math": "protocol.environments.math_problems",
    "reasoning_gym": "protocol.environments.reasoning_gym",
    "verifiers": "protocol.environments.verifiers",
}
"""Name to module; imported when asked for."""


def environment_names() -> list[str]:
    return list(environment_packages())


def environment_packages() -> dict[str, str]:
    """Name to the distribution that brings it, names in order."""
    points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    brought = {name: point.dist.name if point.dist else point.value for name, point in points.items()}
    return dict(sorted({**brought, **dict.fromkeys(BUILT_IN, "proofpool")}.items()))


def load_environment(name: str, config: dict[str, Any], tokenizer: Tokenizer) -> Environment:
    """The environment of this name; raises ConfigError where there is none or its configuration is wrong.

    Example: `load_environment("reasoning_gym", {"dataset": "chain_sum"}, Tokenizer.load(folder))`.
    """
    environment = _loader(name)(config, tokenizer)
    largest = max(environment.config.chosen, default=0)
    if largest >= environment.num_problems:
        why = f"its choice names {largest}, there are {environment.num_problems}"
        raise ConfigError(f"the environment {name!r} hasn't got a problem that it is to ask", why)
    return environment


def environment_of(rules: EnvironmentRules, tokenizer: Tokenizer, *, judges: bool = True) -> Environment:
    """The environment that a pool's rules name; raises ConfigError unless its hash is the one in the rules.

    `judges` false: for its problems alone, on a machine that can't judge answers perhaps.
    """
    environment = load_environment(rules.name, rules.config, tokenizer)
    if environment.environment_hash != rules.environment_hash:
        raise ConfigError(
            f"the environment {rules.name!r} here isn't the pool's",
            f"{environment.environment_hash} against {rules.environment_hash}",
            "install the package version and the tokenizer that the pool uses",
        )
    if judges and (fault := environment.judge_fault()):
        raise fault
    return environment


def _loader(name: str) -> Loader:
    if name in BUILT_IN:
        return cast(Loader, import_module(BUILT_IN[name]).load)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            return cast(Loader, point.load())
    raise ConfigError(f"no environment is called {name!r}", f"there are: {', '.join(environment_names())}")
