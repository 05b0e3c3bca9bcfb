"""Programs as answers: run in a sandbox against a problem's tests, right where all of them pass.

In: a problem file with tests in `verification_info` (`code_tests.py`). Out: an `Environment` whose answer is the last
fenced block of Python. Every test is a sandbox of its own (`protocol/sandbox`); what it should give out is compared
here. At the border of a limit a judgement isn't certain, and names the score that another machine may find.

Example::

    {"dataset": "problems.jsonl", "dataset_hash": "0x…", "task_types": ["code"], "limits": {"cpu_seconds": 2}}
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field, ValidationError

from protocol.environments.base import Environment, Judgement, Problem
from protocol.environments.code_answer import program_in
from protocol.environments.code_tests import CodeTest, tests_of
from protocol.environments.from_file import FileEnvironment, ProblemFileConfig
from protocol.environments.problem_files import FileProblem
from protocol.errors import ConfigError
from protocol.sandbox.bubblewrap import sandbox_fault
from protocol.sandbox.limits import Limits
from protocol.sandbox.pool import Pool, shared_pool
from protocol.sandbox.process import Run
from protocol.sandbox.verdict import KILLED, Verdict, judge
from protocol.tokenizer import Tokenizer

VERSION = 1
"""Changes where any answer is judged differently than before."""
NUM_LOOKS = 3
"""How often a run that is right but slow is timed, and how often a contradicted judgement is made in all."""
WRONG = Judgement(0.0)


class CodeConfig(ProblemFileConfig):
    """What of a problem file is asked, and what each test may use up."""

    limits: Limits = Field(default_factory=Limits)
    """For each test."""
    num_tests: int = Field(default=0, ge=0)
    """Only so many of a problem's tests, its first ones; 0: all."""


class Code(FileEnvironment):
    """`reward = "score"` gives the share of tests that pass; else one failure is enough, and the rest isn't run."""

    config: CodeConfig

    def identity(self) -> dict[str, Any]:
        """Answers run on this Python: another minor version is another environment."""
        return {
            "package": "proofpool.code",
            "version": VERSION,
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        }

    def judge_again(self, problem: Problem, completion: Any, found: Judgement) -> Judgement:
        """See the base class: some answers don't do the same twice, by the clock or by the order of their threads."""
        for _ in range(NUM_LOOKS - 1):
            again = self.judge(problem, completion)
            if again.score != found.score:
                return Judgement(found.score, again.score, certain=False)
        return found

    def judge_fault(self) -> ConfigError | None:
        """See the base class: judging takes bubblewrap."""
        return sandbox_fault()

    @property
    def _pool(self) -> Pool:
        return shared_pool(self.config.limits)

    def _check(self, problem: FileProblem) -> None:
        try:
            tests_of(problem.verification_info)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the problem {problem.problem_id!r} has no tests that can be run", str(error)) from error

    def _answer(self, spoken: str) -> str | None:
        return program_in(spoken)

    def _score(self, problem: Problem, answer: str | None) -> float:
        return self._judge(problem, answer).score

    def _judge(self, problem: Problem, answer: str | None) -> Judgement:
        if answer is None:
            return WRONG
        tests = tests_of(problem.entry["info"])
        tests = tests[: self.config.num_tests] if self.config.num_tests else tests
        verdicts: list[Verdict] = []
        for verdict in self._verdicts(answer, tests):
            verdicts.append(verdict)
            if self.config.reward == "pass" and verdict.certain and not verdict.passed:
                return WRONG
        return _judgement(verdicts)

    def _verdicts(self, code: str, tests: tuple[CodeTest, ...]) -> Iterator[Verdict]:
        """In the tests' order, as many at once as the pool has places."""
        step = self._pool.num_at_once
        for start in range(0, len(tests), step):
            some = tests[start : start + step]
            for test, run in zip(some, self._pool.run_all(test.job(code) for test in some), strict=True):
                yield self._verdict(code, test, run)

    def _verdict(self, code: str, test: CodeTest, run: Run) -> Verdict:
        """The judgement of a run, and at the border of the best of several: noise only ever makes a program slower."""
        is_right = test.is_right(run)
        verdict = judge(run, self.config.limits, is_right)
        if verdict.certain or run.ending != "exited":
            return verdict
        if run.exit_code != 0:
            return self._with_more_memory(code, test, verdict)
        for _ in range(NUM_LOOKS - 1):
            again = self._pool.run(test.job(code))
            if again.cpu_seconds + again.idle_seconds < run.cpu_seconds + run.idle_seconds:
                run, verdict = again, judge(again, self.config.limits, test.is_right(again))
            if verdict.certain:
                break
        return verdict

    def _with_more_memory(self, code: str, test: CodeTest, verdict: Verdict) -> Verdict:
        """What fails with twice the memory as well fails on every machine; what a machine kills again is uncertain."""
        run = self._pool.run(replace(test.job(code), memory_factor=2))
        is_right = run.ending == "exited" and run.exit_code == 0 and test.is_right(run)
        return verdict if is_right or run.exit_code == KILLED else replace(verdict, certain=True)


def _judgement(verdicts: list[Verdict]) -> Judgement:
    """The share that passed; the other, where some are uncertain: what a faster machine finds, or else a slower one."""
    num_passed = sum(verdict.passed for verdict in verdicts)
    slow = sum(not verdict.passed and not verdict.certain for verdict in verdicts)
    doubtful = sum(verdict.passed and not verdict.certain for verdict in verdicts)
    if not slow and not doubtful:
        return Judgement(num_passed / len(verdicts))
    other = num_passed + slow if slow else num_passed - doubtful
    return Judgement(num_passed / len(verdicts), other / len(verdicts), certain=False)


def load(config: dict[str, Any], tokenizer: Tokenizer) -> Environment:
    """The environment of a configuration document; raises ConfigError naming what is wrong with it."""
    try:
        return Code(CodeConfig.model_validate(config), tokenizer)
    except ValidationError as error:
        raise ConfigError("the environment's configuration is wrong", str(error)) from error
