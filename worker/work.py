"""One leased task, opened: all that the stages after the lease need.

In: a signed task that the chain agrees with. Out: seed, rules, environment, prompts, requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from protocol.engines.base import Request, requests_of
from protocol.environments.base import Environment
from protocol.prompts import Prompt, task_prompts
from protocol.randomness import task_seed
from protocol.rollouts import FileHeader
from protocol.rules import Rules
from protocol.wire import Signed, Task


@dataclass(frozen=True, eq=False)
class Work:
    """Example: `Work(signed_task, task_id, rules, environment).requests`."""

    signed_task: Signed[Task]
    task_id: str
    rules: Rules
    environment: Environment

    @property
    def task(self) -> Task:
        return self.signed_task.message

    @cached_property
    def seed(self) -> bytes:
        task = self.task
        return task_seed(task.pool_id, task.policy_version, task.node, task.counter, task.beacon_hash)

    @cached_property
    def prompts(self) -> list[Prompt]:
        """One a group."""
        return task_prompts(self.rules, self.environment, self.seed)

    def make_prompts(self) -> list[Prompt]:
        """Have them made now; they are kept."""
        return self.prompts

    @property
    def num_rollouts(self) -> int:
        return self.rules.groups_per_task * self.rules.group_size

    def prompt_of(self, sample: int) -> Prompt:
        """The prompt of a rollout of the task."""
        return self.prompts[sample // self.rules.group_size]

    @property
    def requests(self) -> list[Request]:
        """Every rollout of the task, group by group."""
        prompts = [self.prompt_of(sample).tokens for sample in range(self.num_rollouts)]
        return requests_of(self.seed, prompts, self.rules.sampling, self.environment.tokenizer.eos_ids)

    @property
    def header(self) -> FileHeader:
        return FileHeader(task_id=self.task_id, group_size=self.rules.group_size, sampling=self.rules.sampling)
