"""A task's work by vLLM, as rows of the file that a worker would send, and what it has in common with our engine's.

In: a loaded engine, a world, a task's counter. Out: rollouts with proofs and rewards, in task order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from protocol.engines.base import Completion, Engine, Request, generate, requests_of
from protocol.forward import CausalLM
from protocol.prompts import task_prompts
from protocol.prover import in_task_order
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from protocol.sampling import margins, noise_keys
from tests.unit.verifier.verifier_world import World

NEAR_TIE_NATS = 1e-3
"""Two engines may draw different tokens where the two best noised logits are closer than this."""


def task_requests(world: World, counter: int, sampling: SamplingRules | None = None) -> list[Request]:
    """The requests of a task, as a worker makes them."""
    seed, size = world.seed(counter), world.rules.group_size
    prompts = [p.tokens for p in task_prompts(world.rules, world.environment, seed) for _ in range(size)]
    return requests_of(seed, prompts, sampling or world.rules.sampling, world.environment.tokenizer.eos_ids)


def task_rollouts(engine: Engine, world: World, counter: int, sampling: SamplingRules | None = None) -> list[Rollout]:
    """The rows of a task's file."""
    requests = task_requests(world, counter, sampling)
    return world.rollouts(in_task_order(list(generate(engine, requests)), len(requests)), counter)


def in_order(completions: Sequence[Completion]) -> list[Completion]:
    return sorted(completions, key=lambda completion: completion.sample)


def num_diverging(ours: Sequence[Completion], theirs: Sequence[Completion], model: CausalLM) -> int:
    """Rollouts of two engines whose tokens part, each at a near-tie. Fails where one parts elsewhere."""
    diverging = 0
    for one, other in zip(in_order(ours), in_order(theirs), strict=True):
        assert one.sample == other.sample
        shared = min(len(one.output_tokens), len(other.output_tokens))
        parts = np.flatnonzero(one.output_tokens[:shared] != other.output_tokens[:shared])
        if len(parts):
            diverging += 1
            at = int(parts[0])
            rivals = [int(c.output_tokens[at]) for c in (one, other)]
            assert max(margin_at(model, one, at, token) for token in rivals) < NEAR_TIE_NATS
        else:
            assert len(one.output_tokens) == len(other.output_tokens)
    return diverging


@torch.inference_mode()
def margin_at(model: CausalLM, completion: Completion, position: int, token: int) -> float:
    """How far `token` lies below the best noised logit there, by our own forward pass, in nats."""
    request = completion.request
    read = np.concatenate([request.input_tokens, completion.output_tokens[:position]]).astype(np.int64)
    logits = model.logits(model(torch.from_numpy(read), [len(read)])[-1:]).float().numpy()
    keys = noise_keys(request.seed, [request.sample], [position])
    return float(margins(logits, np.array([token]), keys, request.sampling, 10.0)[0])
