"""Mathematics: problems from a file, answers in the last box of a completion, judged by `math-verify`.

In: a problem file whose `verification_info` has a `ground_truth` (LaTeX, text or a number). Out: an `Environment`
that gives 1 for an answer that is equal, 0 else. What counts as equal: `math_answers.py`, and the table of pairs that
it is tested on (tests/data/math_answers.jsonl).

Example::

    {"dataset": "deepscaler.parquet", "dataset_hash": "0x…", "chat_template": true,
     "prompt_template": "{question}\\nPut your final answer within \\\\boxed{}."}
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from protocol.environments.base import Judgement, Problem
from protocol.environments.from_file import FileEnvironment, ProblemFileConfig
from protocol.environments.math_answers import MAX_ANSWER_BYTES, boxed, comparison
from protocol.environments.math_judge import MARGIN, MathJudge
from protocol.environments.packages import package_versions
from protocol.environments.problem_files import FileProblem
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer

JUDGING_VERSION = 1
"""Raised whenever an answer may be judged otherwise than before."""
PACKAGES = ("math-verify", "latex2sympy2_extended", "antlr4-python3-runtime", "sympy", "mpmath")
GOLD = "ground_truth"


class MathConfig(ProblemFileConfig):
    """Which problems, and how long an answer may be judged. Without `answer_marker` the answer is in the last box."""

    cpu_seconds: float = Field(default=1.0, ge=0.25, le=30)
    """CPU time of a judgement; from a quarter of it on no claim is slashed, at four times it is ended."""


class MathProblems(FileEnvironment):
    """Problems and judgements of one file."""

    config: MathConfig

    def __init__(self, config: MathConfig, tokenizer: Tokenizer) -> None:
        self._versions = package_versions(*PACKAGES)
        super().__init__(config, tokenizer)
        self._judging = MathJudge(config.cpu_seconds)

    def identity(self) -> dict[str, Any]:
        """Python and the machine aren't in it: the judge's process is the same on all."""
        return {
            "package": "proofpool/math",
            "version": JUDGING_VERSION,
            "requirements": self._versions,
            "margin": str(MARGIN),
        }

    def _check(self, problem: FileProblem) -> None:
        gold = problem.verification_info.get(GOLD)
        if not isinstance(gold, str | int | float) or isinstance(gold, bool) or not str(gold).strip():
            why = f"problem {problem.problem_id}: verification_info has no {GOLD}, a text or a number"
            raise ConfigError(f"the dataset {self.config.dataset!r} isn't one of math problems", why)
        if len(str(gold).encode()) > MAX_ANSWER_BYTES:
            why = f"problem {problem.problem_id}: its {GOLD} has over {MAX_ANSWER_BYTES} bytes"
            raise ConfigError(f"the dataset {self.config.dataset!r} has an answer that nobody could give", why)

    def _answer(self, spoken: str) -> str | None:
        return super()._answer(spoken) if self.config.answer_marker else boxed(spoken)

    def _judge(self, problem: Problem, answer: str | None) -> Judgement:
        if answer is None:
            return Judgement(0.0)
        gold = str(problem.entry["info"][GOLD])
        found = comparison(boxed(gold) or gold, answer)
        return self._judging.judge(found.pairs) if found.decided is None else Judgement(float(found.decided))

    def _score(self, problem: Problem, answer: str | None) -> float:
        return self._judge(problem, answer).score


def load(config: dict[str, Any], tokenizer: Tokenizer) -> MathProblems:
    """The environment of a configuration document; raises ConfigError naming what is wrong with it."""
    try:
        return MathProblems(MathConfig.model_validate(config), tokenizer)
    except ValidationError as error:
        raise ConfigError("the environment's configuration is wrong", str(error)) from error
