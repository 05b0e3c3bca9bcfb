"""How soon a cheat shows under Gumbel-max, as this project draws tokens, and under inverse CDF, the usual other way.

Both bind a token to the seed: a verifier draws again from its own logits. The difference is what rounding does to
honest ones: a cumulative sum carries the errors of all tokens before it, an argmax only those of its first two.

In: SmolLM2-135M, contexts that it wrote itself at temperature 1. From the logits of a policy (the right weights in
float32 or bf16, int8 weights, another temperature) each way draws tokens, and the right weights in float32 judge them.
Out: shares of tokens that differ, and with what chance so many tokens tell a cheat from honest bf16, at the same
false-positive rate of the same exact test (`protocol/statistics.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from protocol.engines.base import Request
from protocol.engines.torch import TorchEngine
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.sampling import Float64Array, Keys, Logits, Tokens, noise_keys, uniforms
from protocol.sampling_rows import draw_tokens
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
FALSE_POSITIVE_RATE = 1e-6

Draw = Callable[[Logits, Keys, SamplingRules], Tokens]


@dataclass(frozen=True, eq=False)
class Policy:
    """What draws the tokens: the hidden states of all contexts under some weights, the weights' head, a temperature."""

    name: str
    model: CausalLM
    hidden: torch.Tensor
    rules: SamplingRules = RULES
    seed: bytes = SEED

    def logits(self, rows: slice) -> Logits:
        with torch.inference_mode():
            return self.model.logits(self.hidden[rows]).float().numpy()


def gumbel_max(logits: Logits, keys: Keys, rules: SamplingRules) -> Tokens:
    return draw_tokens(logits, keys, rules)[0]


def inverse_cdf(logits: Logits, keys: Keys, rules: SamplingRules) -> Tokens:
    """The first token at which the cumulative sum, by id, exceeds u. Keys [B · D] hold D draws a row, row by row."""
    return _inverted(_probabilities(logits, rules), keys)


def inverse_cdf_by_rank(logits: Logits, keys: Keys, rules: SamplingRules) -> Tokens:
    """The same with the likeliest tokens first, as implementations of top-p have them."""
    probabilities = _probabilities(logits, rules)
    order = np.argsort(-probabilities, axis=1, kind="stable")
    places = _inverted(np.take_along_axis(probabilities, order, axis=1), keys)
    return np.repeat(order, len(keys) // len(logits), axis=0)[np.arange(len(keys)), places]


def _probabilities(logits: Logits, rules: SamplingRules) -> Float64Array:
    scaled = logits.astype(np.float64) / rules.temperature
    weights: Float64Array = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return weights


def _inverted(weights: Float64Array, keys: Keys) -> Tokens:
    sums = np.cumsum(weights, axis=1)
    draws = uniforms(keys, 1).reshape(len(weights), -1) * sums[:, -1:]
    return np.concatenate([np.searchsorted(row, u, side="right") for row, u in zip(sums, draws, strict=True)])


def _gumbel_draws(logits: Logits, keys: Keys, rules: SamplingRules) -> Tokens:
    draws = len(keys) // len(logits)
    columns = [gumbel_max(logits, keys[draw::draws].copy(), rules) for draw in range(draws)]
    return np.stack(columns, axis=1).reshape(-1)


WAYS: dict[str, Draw] = {
    "Gumbel-max": _gumbel_draws,
    "inverse CDF, by id": inverse_cdf,
    "inverse CDF, likeliest first": inverse_cdf_by_rank,
}


def contexts(folder: Path) -> tuple[list[torch.Tensor], list[int]]:
    """Sequences of prompt and completion without its last token, and how many of each are the prompt's."""
    tokenizer, engine = Tokenizer.load(folder), TorchEngine(max_batch=len(QUESTIONS))
    engine.load(folder)
    prompts = [np.array(tokenizer.encode(TEMPLATE.format(question=q)), dtype=np.int32) for q in QUESTIONS]
    requests = [Request(number, prompt) for number, prompt in enumerate(prompts)]
    done = sorted(engine.generate(requests, SEED, RULES, tokenizer.eos_ids), key=lambda completion: completion.sample)
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
    rounded = int8(right)
    judge = Policy("judge", right, hidden_states(right, sequences, starts, len(sequences)))
    in_bf16 = hidden_states(half, sequences, starts, len(sequences))
    return judge, [
        Policy("honest, float32", right, hidden_states(right, sequences, starts, 1)),
        Policy("honest, bf16", half, in_bf16),
        Policy("int8 weights", rounded, hidden_states(rounded, sequences, starts, len(sequences))),
        Policy("temperature 0.9", right, judge.hidden, rules=COOLER),
        Policy("temperature 0.9, bf16", half, in_bf16, rules=COOLER),
        Policy("wrong seed", right, judge.hidden, seed=OTHER_SEED),
    ]


def flip_shares(judge: Policy, judged: Sequence[Policy]) -> dict[str, dict[str, float]]:
    """Way -> policy -> share of its tokens that aren't the judge's."""
    counts = {way: dict.fromkeys((policy.name for policy in judged), 0) for way in WAYS}
    num_rows = len(judge.hidden)
    for rows in _blocks(num_rows):
        own = judge.logits(rows)
        theirs = [policy.logits(rows) for policy in judged]
        for way, draw in WAYS.items():
            expected = draw(own, _keys(SEED, rows, num_rows), judge.rules)
            for policy, logits in zip(judged, theirs, strict=True):
                drawn = draw(logits, _keys(policy.seed, rows, num_rows), policy.rules)
                counts[way][policy.name] += int((drawn != expected).sum())
    num_tokens = num_rows * DRAWS_PER_CONTEXT
    return {way: {name: count / num_tokens for name, count in found.items()} for way, found in counts.items()}


def power(honest: float, cheat: float, num_tokens: int) -> float:
    """How often a cheat's flips are refused, where an honest submission's are with FALSE_POSITIVE_RATE at most."""
    return binomial_tail(num_tokens, cheat, least_count(num_tokens, honest, FALSE_POSITIVE_RATE))


def _blocks(num_rows: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK_ROWS, num_rows)) for start in range(0, num_rows, BLOCK_ROWS))


def _keys(seed: bytes, rows: slice, num_rows: int) -> Keys:
    """DRAWS_PER_CONTEXT keys a row."""
    samples = np.repeat(np.arange(num_rows)[rows], DRAWS_PER_CONTEXT)
    return noise_keys(seed, samples, np.tile(np.arange(DRAWS_PER_CONTEXT), len(samples) // DRAWS_PER_CONTEXT))
