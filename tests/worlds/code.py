"""The code environment over problems of our own, and answers of five kinds with what each scores.

`tests/data/code_problems.jsonl` is a problem file in PRIME-RL's columns: small problems, each both by standard input
and by a call. `tests/data/code_answers.jsonl` has for each a program that is right, one that looks right, one that is
slow, one that crashes and one that cheats. `python -m tests.worlds.code N` prints what the first N answers score.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.environments.base import Problem
from protocol.environments.code import Code, CodeConfig
from protocol.environments.problem_files import DATASETS_VARIABLE, ProblemFile
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer

FOLDER = Path(__file__).resolve().parents[1] / "data"
PROBLEMS, ANSWERS = FOLDER / "code_problems.jsonl", FOLDER / "code_answers.jsonl"
KINDS = ("right", "wrong", "slow", "crash", "cheat")


@dataclass(frozen=True)
class Answer:
    """A program for a problem, and what it scores."""

    problem_id: str
    kind: str
    code: str
    score: float

    @property
    def text(self) -> str:
        """As a model would say it."""
        return f"<think>Hm: ```python\nprint('no')\n```</think>This does it:\n```python\n{self.code}\n```\nDone."


def answers(kinds: Sequence[str] = KINDS) -> list[Answer]:
    found = [Answer(**json.loads(line)) for line in ANSWERS.read_text().splitlines()]
    return [answer for answer in found if answer.kind in kinds]


class World:
    """The environment, and its problems by their id."""

    def __init__(self, **changes: Any) -> None:
        os.environ[DATASETS_VARIABLE] = str(FOLDER)
        pinned = {"dataset": PROBLEMS.name, "dataset_hash": ProblemFile(PROBLEMS).dataset_hash}
        quick = {"limits": {"cpu_seconds": 0.3, "idle_seconds": 2}, "held_back_per_mille": 0}
        config = CodeConfig.model_validate({**pinned, **quick, **changes})
        self.environment = Code(config, Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID))
        every = map(self.environment.problem, range(self.environment.num_problems))
        self.problems: dict[str, Problem] = {problem.problem_id: problem for problem in every}

    def score(self, answer: Answer) -> float:
        return self.environment.judge_text(self.problems[answer.problem_id], answer.text).score

    def misjudged(self, some: Sequence[Answer]) -> Iterator[str]:
        """What is judged otherwise than it should be, or without certainty."""
        for answer in some:
            found = self.environment.judge_text(self.problems[answer.problem_id], answer.text)
            if found.score != answer.score or not found.certain:
                yield f"{answer.problem_id}, {answer.kind}: {found}"


if __name__ == "__main__":
    world = World()
    quick = [answer for answer in answers() if answer.kind != "slow"]
    some = [quick[place % len(quick)] for place in range(int(sys.argv[1]))]
    print(json.dumps([world.score(answer) for answer in some]))
