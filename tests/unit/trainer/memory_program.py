"""How much more resident memory a process has at the peak of two steps than after a step of next to nothing.

In: a model's folder, recipe and scale settings as JSON, the length of completions. Out: bytes on stdout, CPU seconds of
the two steps on stderr.
Run: python tests/unit/trainer/memory_program.py FOLDER '{"max_tokens": 4096}' '{}' 240
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from protocol.forward import CausalLM
from protocol.heap import return_large_blocks
from protocol.weights import ModelConfig
from trainer.learner import Learner, RecipeConfig
from trainer.policy import Policy
from trainer.ranks import ALONE, ScaleConfig
from trainer.samples import Sample, TrainingBatch

GROUP_SIZE, PROMPT_LENGTH, SMALLEST_TOKENS = 4, 8, 32


def main(folder: Path, recipe: RecipeConfig, scale: ScaleConfig, length: int) -> int:
    if scale.map_large_blocks:
        return_large_blocks()
    torch.set_num_threads(1)
    take_steps(
        Policy(smallest_model()).adapted(recipe.lora), recipe, SMALLEST_TOKENS, 2
    )  # what torch loads at its first pass
    before = resident("VmRSS")
    print(f"{before >> 20} MiB without a model", file=sys.stderr)
    policy = Policy.load(folder, ALONE, scale, recipe.lora)
    started = time.process_time()
    take_steps(policy, recipe, 2 * recipe.max_tokens, length)
    print(f"{time.process_time() - started:.2f} CPU s", file=sys.stderr)
    return resident("VmHWM") - before


def take_steps(policy: Policy, recipe: RecipeConfig, num_tokens: int, length: int) -> None:
    learner = Learner(policy, recipe)
    batch = make_batch(policy.model.config.vocab_size, num_tokens, length)
    for version in range(2):
        learner.learn(batch, version)


def smallest_model() -> CausalLM:
    sizes = {"vocab_size": 4, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1}
    shape = {"model_type": "llama", "num_attention_heads": 1, "max_position_embeddings": 64, **sizes}
    config = ModelConfig.model_validate(shape)
    return CausalLM.of(config, {name: torch.ones(size) for name, size in config.weight_shapes().items()})


def make_batch(vocabulary: int, num_tokens: int, length: int) -> TrainingBatch:
    """Completions of equal length that fill two bins, or nearly."""
    generator = torch.Generator().manual_seed(0)
    samples: list[Sample] = []
    for _ in range(num_tokens // (PROMPT_LENGTH + GROUP_SIZE * length)):
        prompt = torch.randint(0, vocabulary, (PROMPT_LENGTH,), generator=generator)
        for member in range(GROUP_SIZE):
            outputs = torch.randint(0, vocabulary, (length,), generator=generator)
            samples.append(Sample(prompt, outputs, -torch.rand(length, generator=generator), member - 1.5, 0.0, 0.0, 0))
    return TrainingBatch(samples, GROUP_SIZE, 1.0, length)


def resident(line: str) -> int:
    """Bytes that /proc says of this process: `VmRSS` now, `VmHWM` at most so far."""
    status = dict(part.split(":", 1) for part in Path("/proc/self/status").read_text().splitlines())
    return int(status[line].split()[0]) * 1024


if __name__ == "__main__":
    recipe, scale = RecipeConfig.model_validate_json(sys.argv[2]), ScaleConfig.model_validate_json(sys.argv[3])
    print(main(Path(sys.argv[1]), recipe, scale, int(sys.argv[4])))
