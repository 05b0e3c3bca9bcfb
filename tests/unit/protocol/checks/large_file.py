"""How much memory judging a file of 100 MB takes: run by test_large_files.py in a process of its own.

8,192,000 tokens in 16,000 rollouts with proofs of noise, which pass every cheap check and fail the others. The hidden
states are drawn at random in place of the forward pass, which would take minutes and whose size a slice bounds.
In: nothing. Out: JSON with bytes of the file, peak bytes of the process, and what came of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from protocol.checks import prefill
from protocol.checks.case import Terms
from protocol.checks.stages import examine_file
from protocol.forward import CausalLM
from protocol.prompts import task_prompts
from protocol.rollouts import Rollout, write_rollouts
from protocol.rules import SamplingRules
from protocol.tokenizer import Tokenizer
from testnet.task import testnet_environment
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules

NUM_TOKENS, GROUP_SIZE, NUM_GROUPS = 512, 2000, 8
FIRST_WORD = 2
"""No EOS: every completion runs to the limit."""


def main() -> None:
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    shape = {"group_size": GROUP_SIZE, "groups_per_task": NUM_GROUPS, "max_file_bytes": 1 << 27}
    rules = make_rules(environment, sampling=SamplingRules(max_new_tokens=NUM_TOKENS), **shape)
    world = World(rules, environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())
    file = write_rollouts(world.header(), rollouts_of(world, np.random.default_rng(0)))
    prefill.sampled_states = drawn_states  # type: ignore[assignment]
    found = examine_file(file, world.rules, lambda: terms_of(world), lambda: world.model)
    print(
        json.dumps(
            {
                "file_bytes": len(file),
                "peak_bytes": peak_bytes(),
                "num_audited": found.num_audited,
                "outcomes": {result.check: result.outcome for result in found.results},
            }
        )
    )


def peak_bytes() -> int:
    """The most that this program has held; `getrusage` would count what started it as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return 1024 * int(found)


def terms_of(world: World) -> Terms:
    return world.terms(seed=world.seed())


def rollouts_of(world: World, draw: np.random.Generator) -> list[Rollout]:
    prompts, rows = task_prompts(world.rules, world.environment, world.seed()), []
    for index in range(GROUP_SIZE * NUM_GROUPS):
        prompt = prompts[index // GROUP_SIZE]
        tokens = draw.integers(FIRST_WORD, world.model.config.vocab_size, NUM_TOKENS).astype(np.int32)
        reward = world.environment.reward(prompt.problem, tokens.tolist())
        logprobs = draw.normal(-3, 0.1, NUM_TOKENS).astype(np.float32)
        kind = (prompt.problem_id, prompt.task_type, prompt.target_length, "length")
        rows.append(Rollout(prompt.tokens, tokens, logprobs, reward, noise_proofs(draw), 0, *kind))
    return rows


def noise_proofs(draw: np.random.Generator) -> bytes:
    coefficients = draw.integers(0, 65497, (NUM_TOKENS // 32, 128))
    words = np.concatenate([np.full((len(coefficients), 1), 65497), coefficients], axis=1)
    return words.astype(">u2").tobytes()


def drawn_states(model: CausalLM, rollouts: Sequence[Rollout]) -> torch.Tensor:
    return torch.randn(sum(rollout.num_units for rollout in rollouts), model.config.hidden_size)


if __name__ == "__main__":
    main()
