"""Adapters of low rank: the model stays as it is, and what is trained is added to its projections.

    y = x·Wᵀ + b + (α/r) · (x·Aᵀ)·Bᵀ        W, b frozen; A [r, in] random, B [out, r] zero at the start

In: a model and `LoraConfig`. Out: the same model, its named projections `Adapted`, everything else frozen. What is
published is W + (α/r)·B·A, so that workers need not know of adapters; checkpoints keep A, B and their optimizer state.
Source: LoRA, arXiv:2106.09685, section 4.1; A starts as its authors' code has it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor, nn
from torch.nn import functional

from protocol.forward import CausalLM
from protocol.gradients import linear
from protocol.products import product

Target = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS: tuple[Target, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
DOWN, UP = "lora_a", "lora_b"


class LoraConfig(BaseModel):
    """Which projections of each layer have adapters, and how large these are."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    rank: int = Field(default=16, ge=1, le=65_536)
    """r: what an adapter adds has at most this rank."""
    alpha: float = Field(default=32.0, gt=0)
    """α: an adapter's product is multiplied by α/r."""
    targets: tuple[Target, ...] = Field(default=TARGETS, min_length=1)
    """Projections that have adapters, in every layer."""
    seed: int = Field(default=0, ge=0)
    """Of what adapters start from: each follows from this and its name, on any number of ranks."""

    @field_validator("targets")
    @classmethod
    def _each_once(cls, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        if len(set(targets)) < len(targets):
            raise ValueError("a projection is named twice")
        return targets

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class Adapted(nn.Module):
    """A frozen linear map with an adapter; its own parameters keep their names."""

    bias: nn.Parameter | None

    def __init__(self, plain: nn.Linear, lora: LoraConfig) -> None:
        super().__init__()
        self.weight = plain.weight
        self.register_parameter("bias", plain.bias)
        weight, rank = plain.weight, lora.rank
        self.lora_a = nn.Parameter(weight.new_empty(rank, plain.in_features))
        self.lora_b = nn.Parameter(weight.new_empty(plain.out_features, rank))
        self.scale = lora.scale
        self.is_on = True

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        frozen = (linear if torch.is_grad_enabled() else product)(x, self.weight, self.bias)
        if not self.is_on:
            return frozen
        added = functional.linear(functional.linear(x, self.lora_a), self.lora_b)
        return frozen.add(added, alpha=self.scale)


def adapt(model: CausalLM, lora: LoraConfig) -> None:
    """Freezes the model and puts adapters into it, whose values are the caller's to set (`first_values`)."""
    model.requires_grad_(False)
    for layer in model.layers():
        for target in lora.targets:
            owner = layer.self_attn if hasattr(layer.self_attn, target) else layer.mlp
            setattr(owner, target, Adapted(getattr(owner, target), lora))


@contextmanager
def switched_off(model: nn.Module) -> Iterator[None]:
    """During the block the model computes what it did before it was adapted."""
    adapted = [module for module in model.modules() if isinstance(module, Adapted)]
    for module in adapted:
        module.is_on = False
    try:
        yield
    finally:
        for module in adapted:
            module.is_on = True


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is an adapter's."""
    return name.endswith((f".{DOWN}", f".{UP}"))


def first_values(name: str, shape: tuple[int, ...], lora: LoraConfig) -> Tensor:
    """What an adapter's parameter starts from, float32, the whole of it: B zero, A uniform within 1/√in."""
    if name.endswith(f".{UP}"):
        return torch.zeros(shape)
    digest = hashlib.sha256(f"proofpool/lora/{lora.seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.empty(shape).uniform_(-1, 1, generator=generator) / math.sqrt(shape[1])


def merged(weight: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """W + (α/r)·B·A: [out, in]."""
    return torch.addmm(weight, up, down, alpha=scale)


def num_adapter_parameters(shapes: dict[str, tuple[int, ...]], lora: LoraConfig) -> int:
    """For a model whose tensors have these names and shapes."""
    adapted = (shape for name, shape in shapes.items() if name.endswith(tuple(f".{t}.weight" for t in lora.targets)))
    return sum(lora.rank * (rows + columns) for rows, columns in adapted)
