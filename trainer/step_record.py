"""What a checkpoint says of the step that made it: enough to take the step again and to know the outcome.

In: a learner's state and the batch. Out: `StepRecord`, which is `step.json` of a checkpoint and `training.json` of the
published version, so that the manifest's hash on chain commits to it. Hashes are BLAKE3 of tensors' names, shapes and
bytes: they don't depend on how many ranks keep them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import torch
from blake3 import blake3
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from protocol.canonical import hex0x
from protocol.forward import CausalLM
from protocol.wire import Hash32
from trainer.batch_file import BatchSource
from trainer.learner import Learner, RecipeConfig
from trainer.lora import is_adapter
from trainer.policy import whole
from trainer.ranks import Ranks


class StateHash(BaseModel):
    """The learner's state: float32 master weights, and AdamW's means (of no tensors before the first step)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    weights: Hash32
    optimizer: Hash32


class Arithmetic(BaseModel):
    """What the last bits depend on."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    torch_version: str
    device: str
    cpu_capability: str
    num_threads: int
    num_ranks: int
    compute_dtype: str

    @classmethod
    def here(cls, ranks: Ranks, compute_dtype: str) -> Arithmetic:
        """Of this process. Example: `Arithmetic.here(ALONE, "float32")`."""
        is_gpu = ranks.device.type == "cuda"
        return cls(
            torch_version=torch.__version__,
            device=torch.cuda.get_device_name(ranks.device) if is_gpu else "cpu",
            cpu_capability=torch.backends.cpu.get_cpu_capability(),
            num_threads=torch.get_num_threads(),
            num_ranks=ranks.size,
            compute_dtype=compute_dtype,
        )


class StepRecord(BaseModel):
    """A policy version, and what it was made of. Version 0 was made of no batch, from nothing before."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[2, 3] = 3
    """2 is 3 without adapters."""
    policy_version: int
    num_updates: int
    """Optimizer steps since the base model."""
    state: StateHash
    before: StateHash | None
    batch: BatchSource | None
    recipe: RecipeConfig
    reference: Hash32 | None = None
    """The weights of the frozen model that the KL term holds to, where the recipe has one."""
    base: Hash32 | None = None
    """The frozen weights, where the recipe trains adapters: `state` is of these alone."""
    arithmetic: Arithmetic


def state_hash(learner: Learner) -> StateHash:
    """All ranks must ask; on the first one it is of the whole state."""
    state = learner.state()
    weights, optimizer = names_of(state)
    return StateHash(
        weights=_hash((name, state[name]) for name in weights),
        optimizer=_hash((name, state[name]) for name in optimizer),
    )


def names_of(state: Mapping[str, Tensor]) -> tuple[list[str], list[str]]:
    """Of a learner's state: weights, and AdamW's means, in the order in which they are hashed."""
    names = sorted(state)
    weights = [name for name in names if name.startswith("weights.")]
    return weights, [name for name in names if not name.startswith("weights.")]


def weights_hash(model: CausalLM) -> str:
    """Of a model without its adapters. All ranks must ask."""
    own = ((name, parameter) for name, parameter in sorted(model.named_parameters()) if not is_adapter(name))
    return _hash((f"weights.{name}", parameter) for name, parameter in own)


def _hash(named: Iterable[tuple[str, Tensor]]) -> str:
    digest = blake3(max_threads=blake3.AUTO)
    for _ in hashing(((name, whole(tensor)) for name, tensor in named), digest):
        pass
    return hex0x(digest.digest())


def hashing(named: Iterable[tuple[str, Tensor]], digest: blake3) -> Iterator[Tensor]:
    """The tensors, each put into `digest` on its way."""
    for name, tensor in named:
        plain = tensor.detach().cpu().contiguous()
        head = {"name": name, "shape": list(plain.shape), "dtype": str(plain.dtype).removeprefix("torch.")}
        digest.update(json.dumps(head, sort_keys=True).encode() + b"\n")
        digest.update(plain.flatten().view(torch.uint8).numpy().data)
        yield tensor
