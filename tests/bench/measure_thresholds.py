"""Measure what honest and forged submissions look like to the verifier: the figures behind its limits.

In: the testnet's base model. Out: a table of each statistic's worst honest value and least forged value, and with
`--write` the figures in verifier/thresholds/testnet.float32.json. Run (6 minutes on one core):

    PYTHONPATH=.:tests/unit/verifier python tests/bench/measure_thresholds.py --tasks 8 --write
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol.checks.prefill import measure
from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from protocol.tokenizer import Tokenizer
from protocol.toploc.build import build_rollouts
from protocol.weights import load_weights, save_checkpoint
from testnet.task import MAX_NEW_TOKENS, testnet_environment
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules, states_of
from trainer.learner import Learner, RecipeConfig
from trainer.loss import group_advantages
from trainer.samples import Sample, TrainingBatch

STATISTICS = ("toploc_exponents", "toploc_mantissas", "sampling_margin", "sampling_mismatch", "logprobs")
OUT = Path(__file__).resolve().parents[2] / "verifier" / "thresholds" / "testnet.float32.json"
Figures = dict[str, float]


def figures(world: World, rollouts: list[Rollout], counter: int) -> Figures:
    """The statistics as they are, before a check rounds them."""
    found = measure(world.case(rollouts, counter), world.model)
    claimed = np.concatenate([rollout.output_logprobs for rollout in rollouts])
    values = (
        found.proofs.mismatch_share,
        found.proofs.mantissa_mean,
        float(found.margins.mean()),
        float((found.margins > 0).mean()),
        float(np.abs(claimed - found.logprobs).mean()),
    )
    return {name: float(f"{value:.2g}") for name, value in zip(STATISTICS, values, strict=True)}


def worst(many: list[Figures]) -> Figures:
    return {name: max(one[name] for one in many) for name in many[0]}


def least(many: list[Figures]) -> Figures:
    return {name: min(one[name] for one in many) for name in many[0]}


def honest(world: World, num_tasks: int) -> tuple[Figures, int, int]:
    """The worst figures over batch sizes and thread counts, with how many rollouts and tokens they are over."""
    found, num_rollouts, num_tokens = [], 0, 0
    for counter in range(num_tasks):
        for max_batch, num_threads in ((64, 1), (7, 2), (1, 1))[: 3 if counter < 2 else 2]:
            torch.set_num_threads(num_threads)
            rollouts = world.rollouts(world.completions(counter, max_batch=max_batch), counter)
            torch.set_num_threads(1)
            found.append(figures(world, rollouts, counter))
            num_rollouts += len(rollouts)
            num_tokens += sum(r.num_units for r in rollouts)
    return worst(found), num_rollouts, num_tokens


def folder_of(model: CausalLM) -> Path:
    folder = Path(tempfile.mkdtemp()) / "model"
    save_checkpoint(folder, model.config, model.weights(), [BASE_MODEL / "tokenizer.json"])
    return folder


def with_model(world: World, model: CausalLM) -> Callable[[int], list[Rollout]]:
    """Everything made with another model, as a worker with the wrong weights does."""
    folder = folder_of(model)
    return lambda counter: world.rollouts(world.completions(counter, folder=folder), counter)


def perturbed(model: CausalLM, share: float) -> CausalLM:
    """Every weight off by a random amount of about `share` of the tensor's own spread."""
    torch.manual_seed(0)
    weights = {name: w + share * w.std() * torch.randn_like(w) for name, w in model.weights().items()}
    return CausalLM.of(model.config, weights).eval()


def int8(model: CausalLM) -> CausalLM:
    """Weights rounded to 8 bits a row."""
    weights = {}
    for name, w in model.weights().items():
        scale = w.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127
        weights[name] = (w / scale).round() * scale if w.dim() == 2 else w
    return CausalLM.of(model.config, weights).eval()


def next_version(world: World, learning_rate: float) -> CausalLM:
    """One training step further, on one task's rollouts; weights rounded to bf16 as they are published."""
    rollouts = world.rollouts(world.completions(1000), 1000)
    rewards = torch.tensor([r.task_reward for r in rollouts]).reshape(-1, world.rules.group_size)
    samples = [
        Sample(
            torch.from_numpy(np.concatenate([r.input_tokens, r.output_tokens])).long(), r.num_units, a, r.task_reward, 0
        )
        for r, a in zip(rollouts, group_advantages(rewards).flatten().tolist(), strict=True)
    ]
    recipe = RecipeConfig(learning_rate=learning_rate, warmup_steps=0, optimizer_steps=1, grad_norm_clip=1.0)
    learner = Learner(CausalLM.load(world.folder), recipe)
    learner.learn(TrainingBatch(samples, world.rules.group_size, temperature=1.0), 0)
    return CausalLM.of(world.model.config, learner.model.weights(torch.bfloat16)).eval()


def constant_proofs(world: World) -> Callable[[int], list[Rollout]]:
    one = np.array([65497, 0x3F80] + [0] * 127, dtype=">u2").tobytes()

    def make(counter: int) -> list[Rollout]:
        rows = world.rollouts(world.completions(counter), counter)
        return [replace(r, proofs=one * (len(r.proofs) // len(one))) for r in rows]

    return make


def other_tokens(world: World, **how: Any) -> Callable[[int], list[Rollout]]:
    """Tokens drawn otherwise, proofs and log-probs by the right model."""
    folder = folder_of(how["model"]) if "model" in how else None

    def make(counter: int) -> list[Rollout]:
        seed = world.seed(counter + 5000) if how.get("seed") else None
        completions = world.completions(counter, folder=folder, seed=seed, sampling=how.get("sampling"))
        rows = world.rollouts(completions, counter)
        proofs = build_rollouts([states_of(world.model, r) for r in rows])
        rows = [replace(r, proofs=p) for r, p in zip(rows, proofs, strict=True)]
        right = measure(world.case(rows, counter), world.model).logprobs
        ends = np.cumsum([r.num_units for r in rows])[:-1]
        return [
            replace(r, output_logprobs=row.astype(np.float32))
            for r, row in zip(rows, np.split(right, ends), strict=True)
        ]

    return make


def tenth_forged(world: World) -> Callable[[int], list[Rollout]]:
    """One rollout in ten drawn until it pleased."""
    forged = other_tokens(world, seed=True)

    def make(counter: int) -> list[Rollout]:
        good, bad = world.rollouts(world.completions(counter), counter), forged(counter)
        return [bad[i] if i % 10 == 0 else row for i, row in enumerate(good)]

    return make


def cherry_picked(world: World, num_tries: int = 4) -> Callable[[int], list[Rollout]]:
    """The best of several draws for each rollout, proved and rewarded honestly."""

    def make(counter: int) -> list[Rollout]:
        best = world.rollouts(world.completions(counter), counter)
        for number in range(1, num_tries):
            drawn = world.completions(counter, seed=world.seed(counter + 7000 * number))
            tries = world.rollouts(drawn, counter)
            best = [max(pair, key=lambda r: r.task_reward) for pair in zip(best, tries, strict=True)]
        return best

    return make


def cheats(world: World) -> Iterator[tuple[str, Callable[[int], list[Rollout]]]]:
    other = CausalLM.of(world.model.config, load_weights(BASE_MODEL / "other.safetensors")).eval()
    yield "another checkpoint, as able", with_model(world, other)
    yield "another checkpoint's tokens, the right model's proofs", other_tokens(world, model=other)
    for share in (0.1, 0.03, 0.01, 0.003):
        yield f"weights off by {share:.1%}", with_model(world, perturbed(world.model, share))
    yield "int8 weights", with_model(world, int8(world.model))
    for learning_rate in (1e-3, 3e-4, 1e-4, 3e-5, 1e-5):
        yield f"one step apart, lr {learning_rate:g}", with_model(world, next_version(world, learning_rate))
    yield "best of 4 draws", cherry_picked(world)
    yield "constant proofs", constant_proofs(world)
    yield "wrong seed", other_tokens(world, seed=True)
    yield "a tenth of the rollouts redrawn", tenth_forged(world)
    for temperature in (0.5, 0.9, 1.1, 2.0):
        sampling = SamplingRules(max_new_tokens=MAX_NEW_TOKENS, temperature=temperature)
        yield f"temperature {temperature:g}", other_tokens(world, sampling=sampling)


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures behind verifier/thresholds/testnet.float32.json.")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    rules = make_rules(
        environment, sampling=SamplingRules(max_new_tokens=MAX_NEW_TOKENS), group_size=8, groups_per_task=8
    )
    world = World(rules, environment, BASE_MODEL, CausalLM.load(BASE_MODEL).eval())
    found, num_rollouts, num_tokens = honest(world, arguments.tasks)
    measured: dict[str, Any] = {
        "model": "testnet/base_model, float32",
        "honest": {"num_rollouts": num_rollouts, "num_tokens": num_tokens, "worst": found},
        "forged_least": {},
    }
    print(f"honest, {num_rollouts} rollouts, {num_tokens} tokens: {found}", flush=True)
    for name, make in cheats(world):
        found, outcomes = [], set()
        for counter in range(max(2, arguments.tasks // 4)):
            rollouts = make(counter)
            found.append(figures(world, rollouts, counter))
            outcomes.add(world.examine(rollouts, counter).outcome.name.lower())
        measured["forged_least"][name] = {"outcomes": sorted(outcomes), **least(found)}
        print(f"{name}: {measured['forged_least'][name]}", flush=True)
    if arguments.write:
        document = json.loads(OUT.read_text(encoding="utf-8")) | {"figures": measured}
        OUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
