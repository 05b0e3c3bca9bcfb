"""Rows as a worker's engine and prover make them of a task: honest with the version's weights, forged with others."""

from __future__ import annotations

from pathlib import Path

from protocol.engines.base import generate as completions_of
from protocol.engines.base import requests_of
from protocol.engines.torch import TorchEngine
from protocol.environments.base import Environment
from protocol.prompts import task_prompts
from protocol.prover import in_task_order, proofs_of, reward_of, rollout_of
from protocol.randomness import task_seed
from protocol.rollouts import Rollout
from protocol.rules import Rules
from protocol.wire import Task


def generate(rules: Rules, environment: Environment, folder: Path, task: Task) -> list[Rollout]:
    """All rows of the task, with the model in `folder`."""
    seed = task_seed(task.pool_id, task.policy_version, task.node, task.counter, task.beacon_hash)
    prompts = task_prompts(rules, environment, seed)
    num_rollouts = rules.group_size * rules.groups_per_task
    asked = [prompts[i // rules.group_size] for i in range(num_rollouts)]
    requests = requests_of(seed, [p.tokens for p in asked], rules.sampling, environment.tokenizer.eos_ids)
    engine = TorchEngine(max_batch=num_rollouts)
    engine.load(folder)
    completions = in_task_order(list(completions_of(engine, requests)), num_rollouts)
    proofs = proofs_of(completions, rules.toploc)
    return [
        rollout_of(prompt, completion, proof, reward_of(environment, prompt, completion), 0)
        for prompt, completion, proof in zip(asked, completions, proofs, strict=True)
    ]
