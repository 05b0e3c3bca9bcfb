"""Whether the claimed task rewards are what the environment gives.

In: the seed's problems and the completions. Out: passed, or `reward_mismatch`: slashable where the environment
declares its rewards deterministic and is certain of this one, not paid elsewhere. Rewards are float32 on both sides,
so equal means equal; at the border of a time limit both sides of it are right.
"""

from __future__ import annotations

from protocol.checks.case import Case
from protocol.checks.results import passed, refused
from protocol.reasons import Outcome, RejectReason
from protocol.wire import CheckResult

NAME = "rewards"


def check(case: Case) -> CheckResult:
    for index, rollout in enumerate(case.rollouts):
        problem, completion = case.terms.prompt_of(index).problem, rollout.output_tokens.tolist()
        judgement = case.environment.judge(problem, completion)
        if not judgement.allows(rollout.task_reward):
            judgement = case.environment.judge_again(problem, completion, judgement)
        if not judgement.allows(rollout.task_reward):
            is_slashable = case.environment.deterministic and judgement.certain
            return refused(
                NAME,
                RejectReason.REWARD_MISMATCH,
                f"rollout {index} claims {rollout.task_reward:.6g}, the environment gives {judgement.score:.6g}",
                num_audited=len(case.rollouts),
                outcome=Outcome.SLASH if is_slashable else Outcome.DROP,
            )
    return passed(NAME, num_audited=len(case.rollouts))
