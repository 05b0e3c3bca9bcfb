r"""What a row of a public data set is as a problem.

In: rows, and what the call says of their columns. Out: an `ImportedProblem`, by the first that fits:

    --prompt-column P, --answer-column A    any two columns; the answer as it is
    prompt, verification_info               PRIME-RL, SYNTHETIC-2: taken over, solve rates too
    question, answer                        GSM8K: the answer behind the last ####
    problem, solution                       MATH: the answer in the last \boxed{}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from protocol.environments.math_answers import boxed
from protocol.environments.problem_files import INFO_COLUMN, MAX_INFO_VALUES, MAX_NAME_CHARACTERS, RATE_PREFIX
from protocol.errors import MalformedFile, UsageError
from protocol.unfolding import read_json
from trainer.data_rows import SourceRow

KNOWN = ("problem_id", "task_type", "prompt", INFO_COLUMN, "question", "answer", "problem", "solution")
GSM8K_MARK = "####"

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Share = Annotated[float, Field(ge=0, le=1)]


class ImportedProblem(BaseModel):
    """A row in the columns of a problem file; `verification_info` is JSON text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    problem_id: Name
    task_type: Name
    prompt: Annotated[str, Field(min_length=1)]
    verification_info: str
    solve_rates: dict[str, Share]

    def columns(self) -> dict[str, Any]:
        """By column name, as a line of the file has it."""
        texts = self.model_dump(exclude={"solve_rates"})
        return {**texts, **self.solve_rates}


@dataclass(frozen=True)
class Columns:
    """What the call says of a source's columns. Raises UsageError for one of the two without the other."""

    prompt: str | None = None
    answer: str | None = None
    task_type: str = "math"
    """Of rows that don't say."""

    def __post_init__(self) -> None:
        if (self.prompt is None) != (self.answer is None):
            why = f"--prompt-column {self.prompt}, --answer-column {self.answer}"
            raise UsageError("a question and its answer are named together", why, "give both, or neither")

    def is_wanted(self, name: str) -> bool:
        return name in (*KNOWN, self.prompt, self.answer) or name.startswith(RATE_PREFIX)


def problem_of(row: SourceRow, columns: Columns) -> ImportedProblem:
    """Raises MalformedFile naming a row that is no problem."""
    values = row.values
    try:
        prompt, info = _question(values, columns)
        return ImportedProblem(
            problem_id=_id(values.get("problem_id"), row.name),
            task_type=values.get("task_type") or columns.task_type,
            prompt=prompt,
            verification_info=info,
            solve_rates=_solve_rates(values),
        )
    except (TypeError, ValueError, RecursionError) as error:
        todo = "mend or leave out the row, or name other columns with --prompt-column and --answer-column"
        raise MalformedFile(f"{row.where} is no problem", str(error)[:300], todo) from error


def _question(values: dict[str, Any], columns: Columns) -> tuple[Any, str]:
    """The prompt, and `verification_info` as text."""
    if columns.prompt is not None and columns.answer is not None:
        return values.get(columns.prompt), _answer(values.get(columns.answer), columns.answer)
    if {"prompt", INFO_COLUMN} <= values.keys():
        return values["prompt"], _info(values[INFO_COLUMN])
    if {"question", "answer"} <= values.keys():
        return values["question"], _answer(_marked(values["answer"]), "answer")
    if {"problem", "solution"} <= values.keys():
        return values["problem"], _answer(_boxed(values["solution"]), "solution")
    raise ValueError(f"columns {', '.join(values)} are none of a known format")


def _answer(value: Any, column: str) -> str:
    """`verification_info` of an answer."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise ValueError(f"{column} has no answer: {str(value)[:40]!r}")
    return _info({"ground_truth": str(value).strip()})


def _marked(answer: Any) -> str:
    if not isinstance(answer, str) or GSM8K_MARK not in answer:
        raise ValueError(f"answer has no {GSM8K_MARK}: {str(answer)[:40]!r}")
    return answer.rpartition(GSM8K_MARK)[2]


def _boxed(solution: Any) -> str:
    found = boxed(solution) if isinstance(solution, str) else None
    if not found:
        raise ValueError(f"solution has no \\boxed{{}} with an answer: {str(solution)[:40]!r}")
    return found


def _info(value: Any) -> str:
    """The text as it is, or of the object, keys in order."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if not isinstance(read_json(text, MAX_INFO_VALUES), dict):
        raise ValueError(f"{INFO_COLUMN} must be a JSON object, not {text[:40]!r}")
    return text


def _id(value: Any, name: str) -> Any:
    if value is None:
        return name
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _solve_rates(values: dict[str, Any]) -> dict[str, Any]:
    """Without missing numbers, which data frames write as NaN."""
    rates = {name: values[name] for name in sorted(values) if name.startswith(RATE_PREFIX)}
    return {name: rate for name, rate in rates.items() if rate is not None and rate == rate}
