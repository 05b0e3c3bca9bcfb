"""Any dataset of the public `reasoning_gym` package as an environment, by configuration.

In: a dataset's name and parameters. Out: an `Environment` whose problem i is the dataset's item i
under a fixed seed. The package is imported when an environment is loaded, not with this module:
it costs 1.5 seconds.

Example (the testnet's task)::

    {"dataset": "chain_sum", "parameters": {"min_terms": 2, "max_terms": 5, "max_digits": 2}, "answer_marker": "#"}
"""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

from pydantic import Field, ValidationError

from protocol.environments.base import Environment, EnvironmentConfig, Problem
from protocol.environments.packages import package_versions, requirements_of
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer

DATASET_SIZE = 2**31
"""Bounds the index only; items are made when asked for."""

COMPOSITE = "composite"

UNSTABLE = frozenset({"codeio", "isomorphic_strings", "knight_swap", "list_functions", "ransom_note", "word_ladder"})
"""Datasets whose items depend on the process's hash seed: a verifier would ask something else than a worker was asked.
Found by comparing processes; tests/unit/protocol/environments/test_other_processes.py does it for all others."""

LISTED = frozenset({"acre", "gsm_symbolic"})
"""Datasets that draw all their items, or what they are made of, when they are created: they are as large as the
training problems and `LISTED_HELD_BACK` more."""
LISTED_HELD_BACK = 2_048

MOST_SEEN = 20_000
"""Problems in a row without a new question, after which none is expected any more."""

RUNS_ANSWERS = frozenset(
    ("binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication")
    + ("puzzle24", "simple_integration", "spiral_matrix", "string_insertion")
)
"""Datasets whose scorers hand the answer to `eval` (sympy's parser does as well): a completion would be code, run with
the verifier's keys at hand."""


class ReasoningGymConfig(EnvironmentConfig):
    """Which dataset, with which difficulty, and which of its indexes are for training."""

    dataset: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    """The dataset's own configuration, without `seed` and `size`."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    num_problems: int = Field(default=32_768, ge=1, lt=DATASET_SIZE)
    held_back_start: int = Field(default=2**24, ge=0, lt=DATASET_SIZE)
    """First index of the held-back range; it must lie past the training problems. `LISTED` datasets have it there."""


class ReasoningGym(Environment):
    """Problems and scores of one `reasoning_gym` dataset."""

    config: ReasoningGymConfig

    def __init__(self, config: ReasoningGymConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        if config.held_back_start < config.num_problems:
            raise ConfigError(
                "held-back problems would be trained on",
                f"held_back_start {config.held_back_start} < num_problems {config.num_problems}",
            )
        is_listed = bool({config.dataset, *_part_names(config)} & LISTED)
        self._size = config.num_problems + LISTED_HELD_BACK if is_listed else DATASET_SIZE
        self._held_back_start = config.num_problems if is_listed else config.held_back_start
        self._dataset, self._version = _create_dataset(config, self._size)

    @property
    def num_problems(self) -> int:
        return self.config.num_problems

    def identity(self) -> dict[str, Any]:
        """Generators and scorers go to what the package requires: sympy, zss, magiccube and others."""
        requirements = package_versions(*requirements_of("reasoning_gym"))
        return {"package": "reasoning_gym", "version": self._version, "requirements": requirements}

    def held_back(self, count: int) -> list[Problem]:
        """See the base class. Reads every training question once: about 20 us each.

        Raises ConfigError where `MOST_SEEN` in a row ask nothing new: easy datasets have few questions.
        """
        seen = {self._problem(index).question for index in range(self.num_problems)}
        problems: list[Problem] = []
        newest = index = self._held_back_start
        while len(problems) < count:
            if index - newest >= MOST_SEEN or index >= self._size:
                raise self._too_few(len(problems), count)
            problem = self._problem(index)
            index += 1
            if problem.question not in seen:
                seen.add(problem.question)
                problems.append(problem)
                newest = index
        return problems

    def _too_few(self, found: int, count: int) -> ConfigError:
        return ConfigError(
            f"{self.config.dataset} hasn't got so many held-back problems",
            f"{found} of {count} were found, the last {MOST_SEEN:,} asked what is asked already"
            if self._size == DATASET_SIZE
            else f"{found} of {count} were found among {LISTED_HELD_BACK:,}: the dataset lists its items",
            f"set num_problems below {self.num_problems}, make the dataset harder, or hold back fewer",
        )

    def difficulty(self, problem: Problem) -> dict[str, float]:
        """What the dataset varies with its difficulty, as far as it says the value of each problem."""
        metadata: dict[str, Any] = problem.entry.get("metadata") or {}
        said: dict[str, Any] = {name: _said(metadata, name) for name in metadata.get("difficulty") or {}}
        return {name: float(value) for name, value in sorted(said.items()) if _is_number(value)}

    def _problem(self, index: int) -> Problem:
        entry = self._dataset[index]
        name = self.config.dataset
        source = entry["metadata"]["source_dataset"] if name == COMPOSITE else name
        return Problem(index, f"{name}:{index}", f"reasoning_gym/{source}", entry["question"], entry)

    def _score(self, problem: Problem, answer: str | None) -> float:
        try:
            score = float(self._dataset.score_answer(answer, problem.entry))
        except Exception:  # scorers that don't foresee an answer raise whatever parsing it raises
            return 0.0
        return score if 0 <= score <= 1 else 0.0


def load(config: dict[str, Any], tokenizer: Tokenizer) -> ReasoningGym:
    """The environment of a configuration document; raises ConfigError naming what is wrong with it."""
    try:
        return ReasoningGym(ReasoningGymConfig.model_validate(config), tokenizer)
    except ValidationError as error:
        raise ConfigError("the environment's configuration is wrong", str(error)) from error


def _said(metadata: dict[str, Any], name: str) -> Any:
    """Datasets call what they vary `name`, and its value of a problem that or `num_name`."""
    return metadata.get(name, metadata.get(f"num_{name}"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _create_dataset(config: ReasoningGymConfig, size: int) -> tuple[Any, str]:
    """The package's dataset object and the package's version."""
    _refuse_unfit(config)
    try:
        import reasoning_gym
    except ImportError as error:
        todo = "pip install 'proofpool[environments]'"
        raise ConfigError("the environment needs the reasoning_gym package", str(error), todo) from error
    try:
        parameters = _with_parts(config.parameters) if config.dataset == COMPOSITE else config.parameters
        dataset = reasoning_gym.create_dataset(config.dataset, seed=config.seed, size=size, **parameters)
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"reasoning_gym can't make {config.dataset!r}", str(error)) from error
    return dataset, version("reasoning_gym")  # the module's own __version__ lags behind


def _refuse_unfit(config: ReasoningGymConfig) -> None:
    """Raises ConfigError for a dataset that is unstable or runs answers, by itself or as part of a composite."""
    names = {config.dataset, *_part_names(config)}
    if COMPOSITE in _part_names(config):
        raise ConfigError("a composite is no part of a composite", "name its parts instead")
    if found := sorted(names & UNSTABLE):
        raise ConfigError(
            f"reasoning_gym's {found[0]} isn't the same in every process",
            "its items depend on Python's hash seed, which each process draws",
            "choose another dataset",
        )
    if found := sorted(names & RUNS_ANSWERS):
        raise ConfigError(
            f"reasoning_gym's {found[0]} runs answers as code",
            "its scorer evaluates the text that a worker sends",
            "choose a dataset whose scorer compares text",
        )


def _with_parts(parameters: dict[str, Any]) -> dict[str, Any]:
    """A composite's parts as the package wants them. Raises TypeError where a part isn't `{name, weight, config}`."""
    from reasoning_gym.composite import DatasetSpec

    parts = [DatasetSpec(**{"weight": 1, "config": {}, **part}) for part in parameters.get("datasets", ())]
    return {**parameters, "datasets": parts}


def _part_names(config: ReasoningGymConfig) -> set[str]:
    """What a composite is made of."""
    parts = config.parameters.get("datasets", ())
    return {str(part.get("name")) for part in parts if isinstance(part, dict)}
