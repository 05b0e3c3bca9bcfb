"""Completions to rollouts: each with its proof over the hidden rows, and the reward that the environment gives.

In: finished completions of the engine, their prompts, the pool's rules. Out: `Rollout` rows of the file,
in task order. A row that can't be proved is an error; there is no null proof.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocol.engines.base import Completion
from protocol.environments.base import Environment
from protocol.errors import ProofpoolError
from protocol.prompts import Prompt
from protocol.rollouts import Rollout
from protocol.rules import ToplocRules
from protocol.toploc.build import build_rollouts


def proofs_of(completions: Sequence[Completion], rules: ToplocRules) -> list[bytes]:
    """The proofs of each completion, ⌈T/32⌉ × 258 bytes."""
    hidden = [completion.hidden_rows for completion in completions]
    return build_rollouts(hidden, chunk_rows=rules.chunk_rows, topk=rules.topk, ties=rules.ties)


def reward_of(environment: Environment, prompt: Prompt, completion: Completion) -> float:
    """The task reward, as float32 stores it."""
    return float(np.float32(environment.reward(prompt.problem, completion.output_tokens.tolist())))


def rollout_of(prompt: Prompt, completion: Completion, proofs: bytes, reward: float, policy_version: int) -> Rollout:
    """One row of the file."""
    return Rollout(
        input_tokens=prompt.tokens,
        output_tokens=completion.output_tokens,
        output_logprobs=completion.output_logprobs,
        task_reward=reward,
        proofs=proofs,
        step=policy_version,
        problem_id=prompt.problem_id,
        task_type=prompt.task_type,
        target_length=prompt.target_length,
        finish_reason=completion.finish_reason,
    )


def in_task_order(completions: Sequence[Completion], num_rollouts: int) -> list[Completion]:
    """Completions by sample number. Raises ProofpoolError unless each rollout of the task is there once."""
    ordered = sorted(completions, key=lambda completion: completion.sample)
    if [completion.sample for completion in ordered] != list(range(num_rollouts)):
        raise ProofpoolError("the engine didn't finish every rollout once", f"{len(ordered)} of {num_rollouts}")
    return ordered
