"""The part that environments over a problem file share: which rows are for training, which are held back.

In: `ProblemFileConfig` (the dataset's name and hash, which task types of it, how much is held back). Out: problems by
index; a subclass judges answers. A row is held back by the hash of its prompt: the same question is never on both
sides, and adding rows moves none from one side to the other.
"""

from __future__ import annotations

from array import array
from typing import Annotated, Any

from pydantic import Field

from protocol.canonical import sha256
from protocol.environments.base import Environment, EnvironmentConfig, Problem
from protocol.environments.problem_files import FileProblem, open_problem_file
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer

MILLE = 1000


class ProblemFileConfig(EnvironmentConfig):
    """What every environment over a problem file can be told."""

    dataset: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=255)]
    """The file's name (`.parquet`, else JSON lines), in the folder `PROOFPOOL_DATASETS`."""
    dataset_hash: Annotated[str, Field(pattern="^0x[0-9a-f]{64}$")]
    """SHA-256 over its problems (`ProblemFile.dataset_hash`): another file under this name is refused."""
    task_types: tuple[str, ...] = ()
    """Only rows with one of these task types; empty: all."""
    held_back_per_mille: int = Field(default=20, ge=0, le=500)
    """About how many of 1,000 questions are kept from training."""


class FileEnvironment(Environment):
    """Problems of one file; subclasses add `identity` and `_score`."""

    config: ProblemFileConfig

    def __init__(self, config: ProblemFileConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self._file = open_problem_file(config.dataset, config.dataset_hash)
        self._training, self._held_back = array("L"), array("L")
        for row, problem in enumerate(self._file):
            if config.task_types and problem.task_type not in config.task_types:
                continue
            self._check(problem)
            (self._held_back if is_held_back(problem.prompt, config.held_back_per_mille) else self._training).append(
                row
            )
        if not self._training:
            why = f"{len(self._file)} rows, task types {', '.join(config.task_types) or 'any'}"
            raise ConfigError(f"the dataset {config.dataset!r} has no training problem", why)

    @property
    def num_problems(self) -> int:
        return len(self._training)

    def held_back(self, count: int) -> list[Problem]:
        """See the base class; each question once, in the file's order."""
        problems: dict[str, Problem] = {}
        for place, row in enumerate(self._held_back):
            if len(problems) == count:
                break
            problem = self._of_row(self.num_problems + place, row)
            problems.setdefault(problem.question, problem)
        if len(problems) < count:
            raise ConfigError(
                f"the dataset {self.config.dataset!r} hasn't got so many held-back problems",
                f"{len(problems)} of {count}, with held_back_per_mille at {self.config.held_back_per_mille}",
                "hold back more, or use fewer",
            )
        return list(problems.values())

    def difficulty(self, problem: Problem) -> dict[str, float]:
        """The file's solve rates: the share of some model's attempts that passed."""
        rates: dict[str, float] = problem.entry["solve_rates"]
        return rates

    def _check(self, problem: FileProblem) -> None:
        """Raises ConfigError for a row that this environment can't judge, when it is loaded and not in the midst."""

    def _problem(self, index: int) -> Problem:
        return self._of_row(index, self._training[index])

    def _of_row(self, index: int, row: int) -> Problem:
        found = self._file[row]
        entry: dict[str, Any] = {"info": found.verification_info, "solve_rates": found.solve_rates}
        return Problem(index, found.problem_id, found.task_type, found.prompt, entry)


def is_held_back(question: str, per_mille: int) -> bool:
    """Whether a question is on the side that isn't trained on.

    >>> [is_held_back(str(number), 500) for number in range(6)]
    [True, False, True, False, True, True]
    """
    return int.from_bytes(sha256(question.strip().encode())[:8], "big") % MILLE < per_mille
