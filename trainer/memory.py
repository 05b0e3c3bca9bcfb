"""How much memory a rank needs for a step, before anything is loaded: what `trainer run --dry-run` says.

In: a model's shape, recipe, scale, number of ranks. Out: `MemoryEstimate`, a part for each thing that exists at once
while a bin of `max_tokens` goes backwards: there it peaks. A token keeps, of each layer, for its gradient:

    2·H (into the two norms) + 3·Q (queries, attention in two shapes) + 2·K (keys, values) + 2·I (gate and up)

H hidden size, Q and K all heads' queries and keys, I the MLP's width; with adapters also what these are given; with
`recompute_activations` only H, and the rest of one layer at a time. A prompt that several rollouts share is attended to
by each of them: long shared prompts add keys and values. On a GPU, what CUDA itself takes and what its allocator leaves
between blocks comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.engines.torch import MAX_CACHE_TOKENS
from protocol.weights import ModelConfig
from trainer.head import LOGITS_BYTES
from trainer.held_back import EvaluationConfig
from trainer.learner import RecipeConfig
from trainer.lora import num_adapter_parameters
from trainer.ranks import ScaleConfig

Place = Literal["gpu", "host"]

FLOAT32_BYTES, INT64_BYTES = 4, 8
RUNTIME_BYTES = 360 << 20
"""Resident memory of Python, torch and this package without a model, as measured on Linux."""


class MemoryPart(BaseModel):
    """One thing that takes memory, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    place: Place
    num_bytes: int
    why: str


class MemoryEstimate(BaseModel):
    """Of one rank, at the peak of a step. A part that there is none of isn't listed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    num_parameters: int
    num_trained: int
    """Parameters that have a gradient."""
    num_ranks: int
    parts: tuple[MemoryPart, ...]

    def total(self, place: Place) -> int:
        """Bytes at a place. Example: `estimate.total("host") / 2**30`."""
        return sum(part.num_bytes for part in self.parts if part.place == place)


@dataclass(frozen=True)
class _Shape:
    """What sizes follow from."""

    model: ModelConfig
    recipe: RecipeConfig
    scale: ScaleConfig
    num_ranks: int

    @property
    def is_dealt(self) -> bool:
        """Whether parameters are sharded: where a layer's weights are copies that come together."""
        return self.num_ranks > 1 or self.scale.compute_dtype != "float32" or self.scale.offload

    @property
    def compute_bytes(self) -> int:
        return 2 if self.scale.compute_dtype == "bfloat16" else FLOAT32_BYTES

    @property
    def computed_on(self) -> Place:
        return "gpu" if self.scale.device == "cuda" else "host"

    @property
    def kept_on(self) -> Place:
        return "host" if self.scale.offload else self.computed_on

    @property
    def num_parameters(self) -> int:
        return _count(self.model.weight_shapes().values())

    @property
    def num_layer_parameters(self) -> int:
        shapes = self.model.weight_shapes()
        return _count(shape for name, shape in shapes.items() if name.startswith("model.layers.0."))

    @property
    def num_root_parameters(self) -> int:
        return self.num_parameters - self.model.num_hidden_layers * self.num_layer_parameters

    @property
    def num_trained(self) -> int:
        lora = self.recipe.lora
        return self.num_parameters if lora is None else num_adapter_parameters(self.model.weight_shapes(), lora)

    @property
    def num_layer_trained(self) -> int:
        """The most that is trained of a layer, or of what isn't one."""
        if self.recipe.lora is not None:
            return self.num_trained // self.model.num_hidden_layers
        return max(self.num_layer_parameters, self.num_root_parameters)

    @property
    def num_head_parameters(self) -> int:
        return self.model.vocab_size * self.model.hidden_size

    def own(self, num_parameters: int) -> int:
        """A rank's share."""
        return -(-num_parameters // self.num_ranks)


def estimate_memory(
    model: ModelConfig,
    recipe: RecipeConfig,
    scale: ScaleConfig,
    num_ranks: int = 1,
    evaluation: EvaluationConfig | None = None,
) -> MemoryEstimate:
    """Of one of `num_ranks` ranks, the first one where they differ.

    Example: `estimate_memory(ModelConfig.load(folder), RecipeConfig(), ScaleConfig()).total("host")`.
    """
    shape = _Shape(model, recipe, scale, num_ranks)
    beside = () if evaluation is None else tuple(_evaluation(model, evaluation))
    parts = (*_state(shape), *_gathered(shape), *_pass(shape), *_logits(shape), *beside, _runtime())
    return MemoryEstimate(
        num_parameters=shape.num_parameters,
        num_trained=shape.num_trained,
        num_ranks=num_ranks,
        parts=tuple(part for part in parts if part.num_bytes),
    )


def _state(shape: _Shape) -> Iterator[MemoryPart]:
    """What stays from step to step, and gradients, which come and go with each optimizer step."""
    own, trained = (FLOAT32_BYTES * shape.own(count) for count in (shape.num_parameters, shape.num_trained))
    yield _part("master weights", shape.kept_on, own, "float32, this rank's rows")
    if shape.recipe.lora is not None:
        yield _part("adapters", shape.kept_on, trained, f"rank {shape.recipe.lora.rank}, float32, this rank's rows")
    if shape.recipe.objective.kl_coefficient and shape.recipe.lora is None:
        yield _part("reference", shape.kept_on, own, "the frozen model of the KL term, float32, this rank's rows")
    yield _part("gradients", shape.kept_on, trained, "float32, this rank's rows")
    yield _part("optimizer", shape.kept_on, 2 * trained, "AdamW's two means, float32, this rank's rows")


def _gathered(shape: _Shape) -> Iterator[MemoryPart]:
    """Copies of whole layers, where parameters are dealt."""
    if not shape.is_dealt:
        return
    root, layer = shape.num_root_parameters, shape.num_layer_parameters
    weights = shape.compute_bytes * (root + 2 * layer)
    why = f"{shape.scale.compute_dtype}: embedding, head, the layer that is computed and the next one"
    yield _part("weights", shape.computed_on, weights, why)
    gradients = (shape.compute_bytes + FLOAT32_BYTES) * shape.num_layer_trained
    yield _part("gradients underway", shape.computed_on, gradients, "of what is summed over ranks at once, whole")


def _pass(shape: _Shape) -> Iterator[MemoryPart]:
    """What a bin keeps for its backward pass."""
    model, num_tokens = shape.model, shape.recipe.max_tokens
    hidden, inner = model.hidden_size, model.intermediate_size
    queries, keys = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    layer = 2 * hidden + 3 * queries + 2 * keys + 2 * inner + _kept_for_adapters(shape)
    count = model.num_hidden_layers
    kept = count * hidden + layer if shape.scale.recompute_activations else count * layer
    kept += 2 * hidden + 2 * model.head_dim  # around the head; sines and cosines
    underway = (inner + 2 * hidden) * (2 if shape.scale.recompute_activations else 1)
    how = "layers' inputs, and one layer's" if shape.scale.recompute_activations else "all layers'"
    why = f"{how}, a bin of {num_tokens:,} tokens in {shape.scale.compute_dtype}"
    activations = num_tokens * (kept + underway) * shape.compute_bytes
    yield _part("activations", shape.computed_on, activations, why)
    if shape.computed_on == "host" and not shape.scale.map_large_blocks:
        yield _part(
            "gaps", "host", activations, "between blocks of the heap, as measured: half to all of the activations"
        )
    yield _part("indexes", shape.computed_on, 8 * INT64_BYTES * num_tokens, "of tokens, positions and packing")


def _kept_for_adapters(shape: _Shape) -> int:
    """Numbers a token and layer: the norms' outputs, and silu(gate) · up."""
    targets = set(() if shape.recipe.lora is None else shape.recipe.lora.targets)
    norms = sum(bool(targets & fed) for fed in ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}))
    return norms * shape.model.hidden_size + ("down_proj" in targets) * shape.model.intermediate_size


def _logits(shape: _Shape) -> Iterator[MemoryPart]:
    whole = FLOAT32_BYTES * shape.recipe.max_tokens * shape.model.vocab_size
    copies = 4 if shape.recipe.objective.entropy_coefficient else 2
    why = f"{copies} slices of at most {LOGITS_BYTES >> 20} MiB; all at once they would be {size_text(whole)}"
    yield _part("logits", shape.computed_on, copies * min(LOGITS_BYTES, whole), why)
    head = FLOAT32_BYTES * shape.num_head_parameters if shape.recipe.lora is None else 0
    yield _part("head's gradient", shape.computed_on, head, "float32, whole, before it is added to the others")


def _evaluation(model: ModelConfig, config: EvaluationConfig) -> Iterator[MemoryPart]:
    """Of the engine for held-back problems, which may hold its weights while a step is taken."""
    if not config.evaluate_every:
        return
    place: Place = "gpu" if config.engine == "vllm" else "host"
    size = 2 if config.dtype == "bfloat16" else FLOAT32_BYTES
    why = f"the evaluation's, {config.dtype}, on the first rank alone"
    yield _part("weights for evaluation", place, size * _count(model.weight_shapes().values()), why)
    num_tokens = min(MAX_CACHE_TOKENS, config.max_batch * model.max_position_embeddings)
    heads = model.num_key_value_heads * model.head_dim
    cache = 2 * size * num_tokens * model.num_hidden_layers * heads
    yield _part("keys and values for evaluation", place, cache, f"at most {num_tokens:,} tokens, as far as it has them")


def _runtime() -> MemoryPart:
    return _part("Python and torch", "host", RUNTIME_BYTES, "measured without a model")


def _part(name: str, place: Place, num_bytes: int, why: str) -> MemoryPart:
    return MemoryPart(name=name, place=place, num_bytes=num_bytes, why=why)


def _count(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes)


def size_text(num_bytes: int) -> str:
    """For people: `3.2 GiB`."""
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
