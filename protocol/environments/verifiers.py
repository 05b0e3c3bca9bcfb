"""Single-turn tasksets of the `verifiers` package (its v1 interface) as an environment.

In: a taskset's id and configuration, its package being installed. Out: an `Environment` whose problems are its tasks,
and whose score is the sum of its weighted rewards. A completion is judged as the reply to one user message; whatever
needs more than that is refused when the environment is loaded: other turns, tools, containers, models as judges.
Rewards run in this process: they are the taskset's own code, and its author is trusted.

Example::

    {"taskset": "my-sums", "taskset_config": {"task": {}}, "is_deterministic": true, "chat_template": true}
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from array import array
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import islice
from typing import Any

from pydantic import Field, ValidationError

from protocol.environments.base import Environment, EnvironmentConfig, Problem
from protocol.environments.from_file import is_held_back
from protocol.environments.packages import package_versions, requirements_of
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer

USES_A_RUNTIME = ("setup", "finalize", "stage_verifier")
"""Hooks of a task that prepare a machine, or read it afterwards."""


class VerifiersConfig(EnvironmentConfig):
    """Which taskset, and what is known of it."""

    taskset: str = Field(min_length=1)
    """Its id, which is its package's name; `owner/` before it and `@version` after it are passed over."""
    taskset_config: dict[str, Any] = Field(default_factory=dict)
    """The taskset's own configuration, without `id`."""
    num_tasks: int = Field(default=0, ge=0)
    """How many of its tasks are read; 0: all. A taskset without an end needs a number."""
    is_deterministic: bool = False
    """That its rewards are the same on every machine. Nobody can tell this from outside: unless it is set, a false
    claim is dropped, never slashed."""
    held_back_per_mille: int = Field(default=20, ge=0, le=500)
    """About how many of 1,000 questions are kept from training."""


class Verifiers(Environment):
    """Problems and rewards of one taskset."""

    config: VerifiersConfig

    def __init__(self, config: VerifiersConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.deterministic = config.is_deterministic
        self._api = _package()
        self._tasks = list(_tasks(self._api, config))
        self._training, self._held_back = array("L"), array("L")
        for place, task in enumerate(self._tasks):
            _check(self._api, task)
            is_back = is_held_back(task.data.prompt_text, config.held_back_per_mille)
            (self._held_back if is_back else self._training).append(place)
        if not self._training:
            raise ConfigError(f"the taskset {config.taskset!r} has no training problem", f"{len(self._tasks)} tasks")

    @property
    def num_problems(self) -> int:
        return len(self._training)

    def identity(self) -> dict[str, Any]:
        """The taskset's distribution, and what it requires, scores; verifiers adds rewards up."""
        module = type(self._tasks[0]).__module__.partition(".")[0]
        names = {name for name in packages_distributions().get(module, ()) if name != "verifiers"}
        needed = {one for name in names for one in requirements_of(name)}
        return {
            "package": "verifiers",
            "requirements": package_versions("verifiers", *names, *needed),
            "module": module,
        }

    def held_back(self, count: int) -> list[Problem]:
        """See the base class; each question once, in the taskset's order."""
        problems: dict[str, Problem] = {}
        for place, task in enumerate(self._held_back):
            problem = self._of_task(self.num_problems + place, task)
            problems.setdefault(problem.question, problem)
        if len(problems) < count:
            why = f"{len(problems)} of {count}, with held_back_per_mille at {self.config.held_back_per_mille}"
            raise ConfigError(f"the taskset {self.config.taskset!r} hasn't got so many held-back problems", why)
        return list(problems.values())[:count]

    def _problem(self, index: int) -> Problem:
        return self._of_task(index, self._training[index])

    def _of_task(self, index: int, place: int) -> Problem:
        task = self._tasks[place]
        name = task.data.id or f"{self.config.taskset}:{place}"
        return Problem(index, name, f"verifiers/{self.config.taskset}", task.data.prompt_text, {"task": task})

    def _system(self, problem: Problem) -> str:
        return self.config.system_prompt or problem.entry["task"].data.system_prompt or ""

    def _score(self, problem: Problem, answer: str | None) -> float:
        if answer is None:
            return 0.0
        task = problem.entry["task"]
        trace = _trace(self._api, task, answer)
        try:
            asyncio.run(task.score(trace))
            score = float(trace.reward)
        except Exception:  # a taskset's own code meets whatever a model writes
            return 0.0
        return score if 0 <= score <= 1 else 0.0


def load(config: dict[str, Any], tokenizer: Tokenizer) -> Verifiers:
    """The environment of a configuration document; raises ConfigError naming what is wrong with it."""
    try:
        checked = VerifiersConfig.model_validate(config)
    except ValidationError as error:
        raise ConfigError("the environment's configuration is wrong", str(error)) from error
    return Verifiers(checked, tokenizer)


def _package() -> Any:
    try:
        return importlib.import_module("verifiers.v1")
    except ImportError as error:
        todo = "pip install 'proofpool[verifiers]'"
        raise ConfigError("the environment needs the verifiers package, 0.4 or later", str(error), todo) from error


def _tasks(api: Any, config: VerifiersConfig) -> Iterator[Any]:
    """The taskset's tasks; raises ConfigError where there is no such taskset, or it plays its own episodes."""
    loaders = importlib.import_module("verifiers.v1.utils.loaders")
    try:
        chosen = loaders.taskset_config_type(config.taskset)
        taskset = loaders.load_taskset(chosen.model_validate({**config.taskset_config, "id": config.taskset}))
        environment = loaders.environment_class(config.taskset)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # ValidationError is a ValueError
        raise ConfigError(f"verifiers can't load the taskset {config.taskset!r}", str(error)) from error
    if environment is not api.SingleAgentEnv:
        raise _unfit(
            config.taskset, f"it plays episodes of its own ({environment.__name__}), of several turns or agents"
        )
    if type(taskset).toolsets(taskset.config):
        raise _unfit(config.taskset, "its model has tools, and so several turns")
    if not taskset.bounded and not config.num_tasks:
        raise ConfigError(f"the taskset {config.taskset!r} has no end", "set num_tasks")
    return islice(taskset, config.num_tasks or None)


def _check(api: Any, task: Any) -> None:
    """Raises ConfigError where a task is more than a question and an answer."""
    name, kind = type(task).__name__, type(task)
    if task.NEEDS_CONTAINER or task.data.image or any(_is_changed(api, kind, hook) for hook in USES_A_RUNTIME):
        raise _unfit(name, "its tasks need a container or another machine")
    if kind.toolsets(task.config):
        raise _unfit(name, "its model has tools, and so several turns")
    if task.config.judges:
        raise _unfit(name, "a model judges its answers, and never twice the same")
    if task.hooks("stop"):
        raise _unfit(name, "it decides when to stop, and so has several turns")
    if not isinstance(task.data.prompt, str) and [message.role for message in task.data.prompt or ()] != ["user"]:
        raise _unfit(name, "its conversation isn't one message of a user")
    rewards = task.hooks("reward")
    if not rewards or any(_needs_runtime(reward) for reward in rewards):
        raise _unfit(name, "its rewards look at a machine, or there are none")


def _unfit(name: str, why: str) -> ConfigError:
    todo = "choose a taskset of single turns whose rewards are functions of the answer"
    return ConfigError(f"proofpool can't ask {name} of verifiers", why, todo)


def _is_changed(api: Any, kind: type, hook: str) -> bool:
    return getattr(kind, hook) is not getattr(api.Task, hook)


def _needs_runtime(reward: Any) -> bool:
    found = inspect.signature(reward).parameters.get("runtime")
    return found is not None and found.default is inspect.Parameter.empty


def _trace(api: Any, task: Any, answer: str) -> Any:
    """What verifiers records of a finished turn, with nothing that a clock or a machine decides."""
    types = importlib.import_module("verifiers.v1.types")
    question = api.MessageNode(message=types.UserMessage(content=task.data.prompt_text), timestamp=0.0)
    reply = api.MessageNode(parent=0, message=types.AssistantMessage(content=answer), sampled=True, timestamp=0.0)
    return api.Trace(
        id="0" * 32,
        task=api.TraceTask(type=type(task).__name__, data=task.data),
        agent=api.AgentInfo(config=api.AgentConfig()),
        nodes=[question, reply],
        is_completed=True,
    )
