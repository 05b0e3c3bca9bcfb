"""Whether every value lies where the rules allow it, so that all later checks can index and add without fear.

In: the parsed rows. Out: passed, or `value_out_of_bounds` (not paid, never slashed).
"""

from __future__ import annotations

from protocol.checks.case import Case
from protocol.checks.results import passed, refused
from protocol.reasons import RejectReason
from protocol.rollouts import Rollout
from protocol.wire import CheckResult

NAME = "bounds"
MIN_LOGPROB = -1e4
MAX_LOGPROB = 1e-3
"""A float32 log-prob may round to slightly above zero."""

MAX_REWARD = 1e6


def check(case: Case) -> CheckResult:
    fault = _file_fault(case) or next(filter(None, (_row_fault(case, r) for r in case.rollouts)), None)
    if fault is not None:
        return refused(NAME, RejectReason.VALUE_OUT_OF_BOUNDS, fault, num_audited=len(case.rollouts))
    return passed(NAME, num_audited=len(case.rollouts))


def _file_fault(case: Case) -> str | None:
    rules = case.rules
    if other := _header_differences(case):
        return f"the file's header differs from the rules: {other}"
    if len(case.rollouts) != rules.group_size * rules.groups_per_task:
        return f"{len(case.rollouts)} rollouts, the task asks for {rules.group_size * rules.groups_per_task}"
    if case.num_units > case.terms.max_units:
        return f"{case.num_units} output tokens, the lease pays at most {case.terms.max_units}"
    return None


def _header_differences(case: Case) -> str:
    claimed = {"group_size": case.header.group_size, **case.header.sampling.model_dump()}
    asked = {"group_size": case.rules.group_size, **case.rules.sampling.model_dump()}
    return ", ".join(f"{name} {claimed[name]}, not {value}" for name, value in asked.items() if claimed[name] != value)


def _row_fault(case: Case, rollout: Rollout) -> str | None:
    vocab_size, limit = case.terms.model_config.vocab_size, case.rules.sampling.max_new_tokens
    for name, tokens in (("input_tokens", rollout.input_tokens), ("output_tokens", rollout.output_tokens)):
        if tokens.min() < 0 or tokens.max() >= vocab_size:
            return f"{name} has an id outside 0 to {vocab_size - 1}"
    if rollout.num_units > limit:
        return f"a completion of {rollout.num_units} tokens, at most {limit}"
    if rollout.step != case.terms.policy_version:
        return f"a rollout of policy version {rollout.step}"
    if rollout.output_logprobs.min() < MIN_LOGPROB or rollout.output_logprobs.max() > MAX_LOGPROB:
        return f"a log-prob outside {MIN_LOGPROB} to {MAX_LOGPROB}"
    if abs(rollout.task_reward) > MAX_REWARD:
        return f"a reward of {rollout.task_reward}"
    return None
