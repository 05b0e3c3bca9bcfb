"""Makes the testnet's base model from nothing: supervised on running sums, the last ones with mistakes in them.

The model first learns to add. Then it reads solutions in which one sum in five is wrong, as texts of the
world are, and makes such mistakes itself from there on: it passes about two fifths of the held-back
problems at temperature 1, and reinforcement learning has something to improve that it can improve fast.

In: a seed. Out: a Hugging Face folder (config.json, model.safetensors in bf16, tokenizer.json), and on
stdout the pass rate on the held-back problems. Takes about ten minutes of one core.

    python -m testnet.base_model.make --seed 0 --out /tmp/base_model     # the committed model
    python -m testnet.base_model.make --seed 1 --out /tmp/other_model    # other.safetensors
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from protocol.environments.base import Environment, Problem
from protocol.forward import CausalLM
from protocol.tokenizer import TOKENIZER_FILE, Tokenizer
from protocol.weights import CONFIG_FILE, ModelConfig, save_checkpoint
from testnet.base_model.pass_rate import pass_rate
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer
from testnet.task import MAX_NEW_TOKENS, NUM_HELD_BACK, testnet_environment

STORED_DTYPE = torch.bfloat16

Example = tuple[list[int], list[int]]
"""Tokens of a prompt and of its completion."""


@dataclass(frozen=True)
class Recipe:
    """How the model is trained. The defaults made the committed one."""

    batch_size: int = 64
    init_std: float = 0.06
    learning_rate: float = 3e-3
    final_learning_rate: float = 4e-4
    warmup_updates: int = 100
    decay_from: int = 500
    mistakes_from: int = 1_300
    """The learning rate falls linearly from `decay_from` to here; from here on solutions have mistakes."""
    mistake_rate: float = 0.2
    """Share of sums that are off by 1 or 10."""
    num_held_back: int = NUM_HELD_BACK
    target_pass_rate: float = 0.40
    tolerance: float = 0.02
    measure_from: int = 1_360
    measure_every: int = 10
    max_updates: int = 1_600

    def learning_rate_at(self, update: int) -> float:
        """Warm-up, constant, linear decay, constant; updates count from 0."""
        warm = min(1.0, (update + 1) / self.warmup_updates)
        decayed = min(1.0, max(0.0, (update - self.decay_from) / (self.mistakes_from - self.decay_from)))
        return warm * (self.learning_rate + decayed * (self.final_learning_rate - self.learning_rate))

    def mistake_rate_at(self, update: int) -> float:
        return self.mistake_rate if update >= self.mistakes_from else 0.0


def model_config(vocab_size: int) -> ModelConfig:
    """4 layers of width 128: 856,960 parameters with a vocabulary of 30."""
    return ModelConfig(
        model_type="llama",
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
    )


def worked_solution(expression: str, wrong_by: Callable[[], int] = lambda: 0) -> str:
    """The completion that the model is taught; `wrong_by` gives the error of each sum, which later sums go on from.

    >>> worked_solution("57 + 87 - 70")
    '57+87=144;144-70=74;#74'
    """
    first, *terms = re.findall(r"[+-]?\d+", expression.replace(" ", ""))
    total, steps = int(first), []
    for term in terms:
        after = total + int(term) + wrong_by()
        steps.append(f"{total}{term}={after};")
        total = after
    return f"{''.join(steps)}#{total}"


def new_model(config: ModelConfig, seed: int, std: float) -> CausalLM:
    """Normal initial weights, the projections into the residual stream scaled down by depth."""
    generator = torch.Generator().manual_seed(seed)
    model = CausalLM(config)
    for name, parameter in model.named_parameters():
        into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
        scale = 1 / math.sqrt(2 * config.num_hidden_layers) if into_residual else 1.0
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=std * scale, generator=generator)
    return model


def batches(environment: Environment, recipe: Recipe, seed: int) -> Iterator[list[Example]]:
    """Batches of training problems, for ever, in a new order each time round."""
    randomness = random.Random(seed)
    order = _endless_order(randomness, environment.num_problems)
    for update in itertools.count():
        rate = recipe.mistake_rate_at(update)
        problems = [environment.problem(next(order)) for _ in range(recipe.batch_size)]
        yield [_example(environment, problem, randomness, rate) for problem in problems]


def _endless_order(randomness: random.Random, size: int) -> Iterator[int]:
    indexes = list(range(size))
    while True:
        randomness.shuffle(indexes)
        yield from indexes


def _example(environment: Environment, problem: Problem, randomness: random.Random, mistake_rate: float) -> Example:
    def wrong_by() -> int:
        return randomness.choice((-10, -1, 1, 10)) if randomness.random() < mistake_rate else 0

    solution = worked_solution(problem.entry["metadata"]["expression"], wrong_by)
    return environment.prompt(problem), [*environment.tokenizer.encode(solution), EOS_ID]


def completion_loss(model: CausalLM, batch: list[Example]) -> Tensor:
    """Mean cross entropy over the completions' tokens, in nats."""
    # The last token of a sequence predicts nothing, so it isn't fed.
    sequences = [(prompt + completion)[:-1] for prompt, completion in batch]
    tokens = torch.tensor([token for sequence in sequences for token in sequence])
    asked = [position >= len(p) - 1 for p, c in batch for position in range(len(p) + len(c) - 1)]
    targets = torch.tensor([token for _, completion in batch for token in completion])
    hidden = model(tokens, [len(sequence) for sequence in sequences])
    return functional.cross_entropy(model.logits(hidden[torch.tensor(asked)]), targets)


def train(
    model: CausalLM, environment: Environment, held_back: list[Problem], recipe: Recipe, seed: int
) -> tuple[CausalLM, float]:
    """Trains until the stored (rounded) model's pass rate on the held-back problems is the target's."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.01)
    stream = batches(environment, recipe, seed)
    for update in range(recipe.max_updates):
        optimizer.param_groups[0]["lr"] = recipe.learning_rate_at(update)
        loss = completion_loss(model, next(stream))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if update % 20 == 0:
            print(f"update {update} loss {loss.item():.4f}", flush=True)
        if update >= recipe.measure_from and update % recipe.measure_every == 0:
            stored = CausalLM.of(model.config, model.weights(STORED_DTYPE))
            rate = pass_rate(stored, environment, held_back, MAX_NEW_TOKENS)
            print(f"update {update} pass rate {rate:.4f}", flush=True)
            if abs(rate - recipe.target_pass_rate) <= recipe.tolerance:
                return stored, rate
    raise SystemExit(f"no pass rate of {recipe.target_pass_rate} within {recipe.max_updates} updates")


def make(out: Path, seed: int, recipe: Recipe) -> float:
    """Writes the model folder `out` and returns its pass rate."""
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer_file = Path(scratch) / TOKENIZER_FILE
        make_tokenizer().save(str(tokenizer_file))
        config = model_config(make_tokenizer().get_vocab_size())
        (Path(scratch) / CONFIG_FILE).write_text(json.dumps(config.as_hugging_face()), encoding="utf-8")
        environment = testnet_environment(Tokenizer.load(Path(scratch)))
        held_back = environment.held_back(recipe.num_held_back)
        model, rate = train(new_model(config, seed, recipe.init_std), environment, held_back, recipe, seed)
        save_checkpoint(out, config, model.weights(STORED_DTYPE), [tokenizer_file])
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the testnet's base model from nothing.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder to write; it must not exist")
    arguments = parser.parse_args()
    rate = make(arguments.out, arguments.seed, Recipe())
    print(f"{arguments.out}: pass rate {rate:.4f} on {NUM_HELD_BACK} held-back problems")


if __name__ == "__main__":
    main()
