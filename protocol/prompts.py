"""The prompts of a task, which nobody chooses: they follow from its seed.

    group g:  stream = SeedStream(seed, "group/g")
              problem = stream.below(number of problems that are asked), where tiers are set after a tier by weight
              target length = targets[stream.below(number of targets)], or −1 where the rules have none

In: a pool's rules, its environment and a task's seed. Out: one `Prompt` a group. Worker and verifier call the
same function; rollouts group × group_size … of a file belong to group's prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.environments.base import NO_TARGET_LENGTH, Environment, Problem
from protocol.randomness import SeedStream
from protocol.rollouts import Int32Array
from protocol.rules import Rules


@dataclass(frozen=True, eq=False)
class Prompt:
    """What one group is asked. `tokens` int32 [P]; `target_length` in tokens, −1 for none.

    A file's `problem_id` and `task_type` columns must hold the values here.
    """

    problem: Problem
    tokens: Int32Array
    target_length: int

    @property
    def problem_id(self) -> str:
        return self.problem.problem_id

    @property
    def task_type(self) -> str:
        return self.problem.task_type


def task_prompts(rules: Rules, environment: Environment, seed: bytes) -> list[Prompt]:
    """The prompts of all groups of the task with this seed, in order."""
    return [group_prompt(rules, environment, seed, group) for group in range(rules.groups_per_task)]


def group_question(rules: Rules, environment: Environment, seed: bytes, group: int) -> tuple[Problem, int]:
    """What one group is asked, before it is tokens: the problem and the target length."""
    stream = SeedStream(seed, f"group/{group}")
    problem = environment.draw(stream)
    targets = rules.lengths.targets
    return problem, targets[stream.below(len(targets))] if targets else NO_TARGET_LENGTH


def group_prompt(rules: Rules, environment: Environment, seed: bytes, group: int) -> Prompt:
    """The prompt of one group."""
    problem, target_length = group_question(rules, environment, seed, group)
    tokens = np.array(environment.prompt(problem, target_length), dtype=np.int32)
    return Prompt(problem, tokens, target_length)
