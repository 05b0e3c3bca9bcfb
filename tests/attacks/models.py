"""The models that cheats use, by name, for each pool that is lied to.

In: an arena's right model. Out: others. Where no second checkpoint of the same size exists, one is made by shaking
every weight by a tenth of its spread: farther from the right one than fine-tunes, nearer than another seed.
"""

from __future__ import annotations

from protocol.forward import CausalLM
from protocol.weights import load_weights
from tests.attacks import weights
from tests.attacks.arena import RIGHT, Arena, MakeModel
from tests.attacks.attack import Attack

NUM_TRAINED_ON = 32
"""Rollouts of the first task that a training step is made of."""


def trained(learning_rate: float, steps: int = 1) -> MakeModel:
    """Optimizer steps away on honest rollouts."""

    def make(arena: Arena) -> CausalLM:
        rollouts = Attack("", "").rows(arena, 0)[:NUM_TRAINED_ON]
        return weights.trained(arena.model(RIGHT), rollouts, arena.rules.group_size, learning_rate, steps)

    return make


def other_seed(arena: Arena) -> CausalLM:
    """Another checkpoint of the same size where there is one beside the right one."""
    file = arena.world.folder / "other.safetensors"
    right = arena.model(RIGHT)
    return CausalLM.of(right.config, load_weights(file)).eval() if file.exists() else weights.shaken(right, 0.1)


def smaller(arena: Arena) -> CausalLM:
    """Four fifths of the layers."""
    right = arena.model(RIGHT)
    return weights.shallow(right, max(1, right.config.num_hidden_layers * 4 // 5))


MODELS: dict[str, MakeModel] = {
    RIGHT: lambda arena: CausalLM.load(arena.world.folder).eval(),
    "bfloat16": lambda arena: weights.in_bfloat16(arena.model(RIGHT)),
    "smaller": smaller,
    "other seed": other_seed,
    "shaken 1 %": lambda arena: weights.shaken(arena.model(RIGHT), 0.01),
    "int8": lambda arena: weights.rounded(arena.model(RIGHT), 8),
    "int4": lambda arena: weights.rounded(arena.model(RIGHT), 4, group=32),
    "4 steps, 1e-4": trained(1e-4, 4),
    "1 step, 1e-4": trained(1e-4),
    "1 step, 1e-5": trained(1e-5),
    "1 step, 1e-6": trained(1e-6),
}
