"""Makes the testnet's base model from nothing: supervised on running sums, stopped at a target pass rate.

In: a seed. Out: a Hugging Face folder (config.json, model.safetensors in bf16, tokenizer.json), and on
stdout the pass rate on the held-back problems. Takes about ten minutes of one core. The stop is early
on purpose: reinforcement learning has to have something left to improve.

    python -m testnet.base_model.make --seed 0 --out /tmp/base_model                    # the committed model
    python -m testnet.base_model.make --seed 0 --batch-size 128 --out /tmp/other_model  # other.safetensors
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from protocol.environments.base import Environment, Problem
from protocol.forward import CausalLM
from protocol.tokenizer import TOKENIZER_FILE, Tokenizer
from protocol.weights import CONFIG_FILE, ModelConfig, save_checkpoint
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer
from testnet.pass_rate import pass_rate
from testnet.task import MAX_NEW_TOKENS, NUM_HELD_BACK, testnet_environment

STORED_DTYPE = torch.bfloat16
NUM_ROUGH = 128


@dataclass(frozen=True)
class Recipe:
    """How the model is trained. The defaults made the committed one."""

    learning_rate: float = 3e-3
    warmup_updates: int = 100
    batch_size: int = 64
    max_updates: int = 1_500
    target_pass_rate: float = 0.38
    init_std: float = 0.06
    loss_to_measure: float = 0.28
    """The pass rate is measured every `measure_every` updates once the loss is below this, in nats a token."""
    measure_every: int = 4


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


def worked_solution(expression: str) -> str:
    """The completion that the model is taught.

    >>> worked_solution("57 + 87 - 70")
    '57+87=144;144-70=74;#74'
    """
    first, *terms = re.findall(r"[+-]?\d+", expression.replace(" ", ""))
    total, steps = int(first), []
    for term in terms:
        after = total + int(term)
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


def examples(environment: Environment, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Prompt and completion tokens of the training problems, for ever, in a new order each time round."""
    order = random.Random(seed)
    indexes = list(range(environment.num_problems))
    while True:
        order.shuffle(indexes)
        for index in indexes:
            problem = environment.problem(index)
            solution = worked_solution(problem.entry["metadata"]["expression"])
            yield environment.prompt(problem), [*environment.tokenizer.encode(solution), EOS_ID]


def completion_loss(model: CausalLM, batch: list[tuple[list[int], list[int]]]) -> Tensor:
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
    """Trains until the stored (rounded) model passes `target_pass_rate` of the held-back problems."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / recipe.warmup_updates))
    stream = examples(environment, seed)
    for update in range(1, recipe.max_updates + 1):
        loss = completion_loss(model, list(itertools.islice(stream, recipe.batch_size)))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if update % 10 == 0:
            print(f"update {update} loss {loss.item():.4f}", flush=True)
        if update % recipe.measure_every == 0 and loss.item() < recipe.loss_to_measure:
            stored = CausalLM.of(model.config, model.weights(STORED_DTYPE))
            rate = _measured(stored, environment, held_back, recipe)
            print(f"update {update} loss {loss.item():.4f} pass rate {rate:.4f}", flush=True)
            if rate >= recipe.target_pass_rate:
                return stored, rate
    raise SystemExit(f"no pass rate of {recipe.target_pass_rate} within {recipe.max_updates} updates")


def _measured(model: CausalLM, environment: Environment, held_back: list[Problem], recipe: Recipe) -> float:
    """The pass rate, of a few problems while that is still far from the target, else of all."""
    rough = pass_rate(model, environment, held_back[:NUM_ROUGH], MAX_NEW_TOKENS)
    if rough < recipe.target_pass_rate - 0.1:
        return rough
    return pass_rate(model, environment, held_back, MAX_NEW_TOKENS)


def make(out: Path, seed: int, recipe: Recipe) -> float:
    """Writes the model folder `out` and returns its pass rate."""
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer_file = Path(scratch) / TOKENIZER_FILE
        make_tokenizer().save(str(tokenizer_file))
        config = model_config(make_tokenizer().get_vocab_size())
        (Path(scratch) / CONFIG_FILE).write_text(json.dumps(config.as_hugging_face()), encoding="utf-8")
        environment = testnet_environment(Tokenizer.load(Path(scratch)))
        held_back = environment.held_back(NUM_HELD_BACK)
        model, rate = train(new_model(config, seed, recipe.init_std), environment, held_back, recipe, seed)
        save_checkpoint(out, config, model.weights(STORED_DTYPE), [tokenizer_file])
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the testnet's base model from nothing.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder to write; it must not exist")
    parser.add_argument("--target", type=float, default=Recipe.target_pass_rate, help="pass rate to stop at")
    parser.add_argument("--batch-size", type=int, default=Recipe.batch_size)
    arguments = parser.parse_args()
    recipe = Recipe(target_pass_rate=arguments.target, batch_size=arguments.batch_size)
    rate = make(arguments.out, arguments.seed, recipe)
    print(f"{arguments.out}: pass rate {rate:.4f} on {NUM_HELD_BACK} held-back problems")


if __name__ == "__main__":
    main()
