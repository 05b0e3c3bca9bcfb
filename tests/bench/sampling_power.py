"""How soon a cheat shows under Gumbel-max, as this project draws tokens, and under inverse CDF, the usual other way.

Both bind a token to the seed: a verifier draws again from its own logits. The difference is what rounding does to
honest ones: a cumulative sum carries the errors of all tokens before it, an argmax only those of its first two.

In: SmolLM2-135M, contexts that it wrote itself at temperature 1. From the logits of a policy (the right weights in
float32 or bf16, int8 weights, another temperature) each way draws tokens, and the right weights in float32 say how far
each lies from the token that the seed draws. Out: distances a token, and with what chance so many tokens tell a cheat
from honest bf16 at the same false-positive rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from protocol.engines.base import generate, requests_of
from protocol.engines.torch import TorchEngine
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.sampling import Float64Array, Keys, Logits, Tokens, noise_keys, uniforms
from protocol.sampling_rows import draw_tokens, measure_rows
from protocol.statistics import binomial_tail, least_count
from protocol.tokenizer import Tokenizer

SEED, OTHER_SEED = b"power".ljust(32, b"\0"), b"other".ljust(32, b"\0")
RULES = SamplingRules(max_new_tokens=64)
COOLER = SamplingRules(max_new_tokens=64, temperature=0.9)
TEMPLATE = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
SUBJECTS = ("rivers", "bread", "chess", "glaciers", "violins", "bees", "bridges", "tea")
QUESTIONS = tuple(
    question.format(subject=subject)
    for subject in SUBJECTS
    for question in ("Write a short story about {subject}.", "Explain {subject} to a child, step by step.")
)
DRAWS_PER_CONTEXT = 8
BLOCK_ROWS = 64
FLIPS_RATE, MEAN_RATE = 1e-6, 1e-3
"""False-positive rates: of the exact test, and what resampling can show."""
NUM_RESAMPLES = 10_000
HONEST, WRONG_SEED = "honest, bf16", "wrong seed"

Scalar = TypeVar("Scalar", bound=np.generic)


class GumbelMax:
    """Distance: how far the claimed token's noised logit lies below the best, clipped at 10 nats."""

    def __init__(self, logits: Logits, rules: SamplingRules) -> None:
        self._logits = logits
        self._rules = rules

    def draw(self, keys: Keys) -> Tokens:
        """One token for each of the keys [B, D], D draws a row."""
        return np.stack([draw_tokens(self._logits, column, self._rules)[0] for column in _columns(keys)], axis=1)

    def distances(self, claimed: Tokens, keys: Keys) -> Float64Array:
        columns = zip(_columns(claimed), _columns(keys), strict=True)
        found = [measure_rows(self._logits, tokens, each, self._rules, clip=10.0).margins for tokens, each in columns]
        return np.stack(found, axis=1)


class InverseCdf:
    """The first token whose cumulative probability exceeds u. Distance: of u from the claimed token's interval."""

    def __init__(self, logits: Logits, rules: SamplingRules, by_rank: bool = False) -> None:
        scaled = logits.astype(np.float64) / rules.temperature
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        ids = np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
        self._order = np.argsort(-weights, axis=1, kind="stable") if by_rank else ids
        sums = np.cumsum(np.take_along_axis(weights, self._order, axis=1), axis=1)
        self._sums = np.pad(sums / sums[:, -1:], ((0, 0), (1, 0)))

    def draw(self, keys: Keys) -> Tokens:
        rows = zip(self._sums, _uniforms(keys), strict=True)
        places = np.stack([np.searchsorted(sums[1:], u, side="right") for sums, u in rows])
        return np.take_along_axis(self._order, places, axis=1)

    def distances(self, claimed: Tokens, keys: Keys) -> Float64Array:
        places = np.take_along_axis(np.argsort(self._order, axis=1), claimed, axis=1)
        low, high = (np.take_along_axis(self._sums, places + more, axis=1) for more in (0, 1))
        u = _uniforms(keys)
        return np.where(u < low, low - u, np.where(u >= high, np.maximum(u - high, 2.0**-60), 0.0))


WAYS: dict[str, Callable[[Logits, SamplingRules], GumbelMax | InverseCdf]] = {
    "Gumbel-max": GumbelMax,
    "inverse CDF, by id": InverseCdf,
    "inverse CDF, likeliest first": partial(InverseCdf, by_rank=True),
}


@dataclass(frozen=True, eq=False)
class Policy:
    """What draws the tokens: hidden states of all contexts under some weights, these, a temperature, a seed."""

    name: str
    model: CausalLM
    hidden: torch.Tensor
    rules: SamplingRules = RULES
    seed: bytes = SEED

    def logits(self, rows: slice) -> Logits:
        with torch.inference_mode():
            return self.model.logits(self.hidden[rows]).float().numpy()


def contexts(folder: Path) -> tuple[list[torch.Tensor], list[int]]:
    """Sequences of prompt and completion without its last token, and how many of each are the prompt's."""
    tokenizer, engine = Tokenizer.load(folder), TorchEngine(max_batch=len(QUESTIONS))
    engine.load(folder)
    prompts = [np.array(tokenizer.encode(TEMPLATE.format(question=q)), dtype=np.int32) for q in QUESTIONS]
    requests = requests_of(SEED, prompts, RULES, tokenizer.eos_ids)
    done = sorted(generate(engine, requests), key=lambda completion: completion.sample)
    sequences = [np.concatenate([p, c.output_tokens[:-1]]) for p, c in zip(prompts, done, strict=True)]
    return [torch.from_numpy(s.astype(np.int64)) for s in sequences], [len(p) for p in prompts]


@torch.inference_mode()
def hidden_states(
    model: CausalLM, sequences: Sequence[torch.Tensor], starts: Sequence[int], packed: int
) -> torch.Tensor:
    """States [N, H] that the completions' tokens are drawn from, so many sequences a forward."""
    found = []
    for first in range(0, len(sequences), packed):
        part = sequences[first : first + packed]
        states = torch.split(model(torch.cat(part), [len(s) for s in part]), [len(s) for s in part])
        found += [state[start - 1 :] for state, start in zip(states, starts[first : first + packed], strict=True)]
    return torch.cat(found)


def int8(model: CausalLM) -> CausalLM:
    """Matrices rounded to 8 bits, one scale a row."""
    weights = {}
    for name, w in model.weights().items():
        scale = w.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127
        weights[name] = (w / scale).round() * scale if w.dim() == 2 else w
    return CausalLM.of(model.config, weights).eval()


def policies(folder: Path) -> tuple[Policy, list[Policy]]:
    """The judge, and those that it judges: float32 packed otherwise, bf16, and the cheats."""
    sequences, starts = contexts(folder)
    right, half = CausalLM.load(folder).eval(), CausalLM.load(folder, torch.bfloat16).eval()
    rounded, together = int8(right), len(sequences)
    in_bf16 = hidden_states(half, sequences, starts, together)
    return Policy("judge", right, hidden_states(right, sequences, starts, together)), [
        Policy("honest, float32", right, hidden_states(right, sequences, starts, 1)),
        Policy(HONEST, half, in_bf16),
        Policy("int8 weights", rounded, hidden_states(rounded, sequences, starts, together)),
        Policy("temperature 0.9", half, in_bf16, rules=COOLER),
        Policy(WRONG_SEED, half, in_bf16, seed=OTHER_SEED),
    ]


def judged_distances(judge: Policy, judged: Sequence[Policy]) -> dict[str, dict[str, Float64Array]]:
    """Way -> policy -> float64 [N · D]: the distance of each of its tokens; 0 for the judge's own."""
    parts: dict[str, dict[str, list[Float64Array]]] = {way: {one.name: [] for one in judged} for way in WAYS}
    for start in range(0, len(judge.hidden), BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, len(judge.hidden)))
        own, theirs = judge.logits(rows), [policy.logits(rows) for policy in judged]
        for way, make in WAYS.items():
            right = make(own, judge.rules)
            for policy, logits in zip(judged, theirs, strict=True):
                tokens = make(logits, policy.rules).draw(_keys(policy.seed, rows))
                parts[way][policy.name].append(right.distances(tokens, _keys(SEED, rows)).reshape(-1))
    found = {way: {name: np.concatenate(each) for name, each in of.items()} for way, of in parts.items()}
    return {way: of | _mixtures(of) for way, of in found.items()}


def flips_power(honest: Float64Array, cheat: Float64Array, num_tokens: int) -> float:
    """How often the exact test of flips refuses a cheat, and honest ones at FLIPS_RATE at most."""
    least = least_count(num_tokens, float((honest > 0).mean()), FLIPS_RATE)
    return binomial_tail(num_tokens, float((cheat > 0).mean()), least)


def mean_power(honest: Float64Array, cheat: Float64Array, num_tokens: int) -> float:
    """The same for the mean distance, at MEAN_RATE, by resampling tokens."""
    rng = np.random.default_rng(0)
    means = [
        np.array([values[rng.integers(0, len(values), num_tokens)].mean() for _ in range(NUM_RESAMPLES)])
        for values in (honest, cheat)
    ]
    return float((means[1] > np.quantile(means[0], 1 - MEAN_RATE)).mean())


def _mixtures(of: dict[str, Float64Array]) -> dict[str, Float64Array]:
    """Honest tokens, every so manieth of which was drawn with other noise."""
    return {
        f"1 in {every} of another seed": np.where(np.arange(len(of[HONEST])) % every == 0, of[WRONG_SEED], of[HONEST])
        for every in (10, 50)
    }


def _columns(values: npt.NDArray[Scalar]) -> list[npt.NDArray[Scalar]]:
    return [np.ascontiguousarray(column) for column in values.T]


def _uniforms(keys: Keys) -> Float64Array:
    return uniforms(keys.reshape(-1), 1).reshape(keys.shape)


def _keys(seed: bytes, rows: slice) -> Keys:
    """uint64 [B, D]: D draws in each context."""
    numbers = np.arange(rows.start, rows.stop)
    samples, positions = np.repeat(numbers, DRAWS_PER_CONTEXT), np.tile(np.arange(DRAWS_PER_CONTEXT), len(numbers))
    return noise_keys(seed, samples, positions).reshape(-1, DRAWS_PER_CONTEXT)
