"""Whether the prompts and target lengths are those that the task's seed names.

In: the seed and the rules. Out: passed, or `wrong_prompts` (slashable: it is re-derived exactly).
"""

from __future__ import annotations

import numpy as np

from protocol.checks.case import Case
from protocol.checks.results import passed, refused
from protocol.prompts import Prompt
from protocol.reasons import RejectReason
from protocol.rollouts import Rollout
from protocol.wire import CheckResult

NAME = "prompts"


def check(case: Case) -> CheckResult:
    for index, rollout in enumerate(case.rollouts):
        difference = _difference(rollout, case.terms.prompt_of(index))
        if difference:
            return refused(
                NAME, RejectReason.WRONG_PROMPTS, f"rollout {index}: {difference}", num_audited=len(case.rollouts)
            )
    return passed(NAME, num_audited=len(case.rollouts))


def _difference(rollout: Rollout, prompt: Prompt) -> str | None:
    """What distinguishes a rollout's question from the one that the seed names."""
    if rollout.problem_id != prompt.problem_id:
        return f"problem {rollout.problem_id!r} instead of {prompt.problem_id!r}"
    if not np.array_equal(rollout.input_tokens, prompt.tokens):
        return "the prompt's tokens differ"
    if rollout.target_length != prompt.target_length:
        return f"target length {rollout.target_length} instead of {prompt.target_length}"
    if rollout.task_type != prompt.task_type:
        return f"task type {rollout.task_type!r} instead of {prompt.task_type!r}"
    return None
