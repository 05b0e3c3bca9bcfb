"""The trained model as the trainer runs it: bins in, log-probs out, its parameters whole or dealt over ranks.

In: a `Bin`. Out: log-probs and entropies of its trained tokens. With several ranks, or other arithmetic than float32,
parameters are sharded by FSDP2: each rank keeps its rows of every float32 master, and has the others' of one layer at
a time, in the type that is computed in. Gradients are summed over ranks in float32.
Source: PyTorch FSDP, arXiv:2304.11277; https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from protocol.forward import CausalLM
from protocol.weights import ModelConfig
from protocol.weights_file import WeightsFile
from trainer.bins import Bin
from trainer.head import token_logprobs
from trainer.lora import Adapted, LoraConfig, adapt, first_values, is_adapter, merged
from trainer.ranks import Ranks, ScaleConfig

COMPUTE_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Policy(nn.Module):
    """A model with its head's log-probs. `model` has the names of the Hugging Face format."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.model = model
        self.device = torch.device("cpu")
        """Where bins are computed."""
        self.compute_dtype = "float32"
        self.lora: LoraConfig | None = None
        """Its adapters; without them all of it is trained."""

    @classmethod
    def load(cls, folder: Path, ranks: Ranks, scale: ScaleConfig, lora: LoraConfig | None = None) -> Policy:
        """The model of a Hugging Face folder, of which a rank reads what it keeps; with new adapters if asked for."""
        config = ModelConfig.load(folder)
        policy = cls(CausalLM.without_weights(config)).adapted(lora).dealt(ranks, scale)
        with WeightsFile(folder, config) as file, torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if not is_adapter(name):
                    start, stop = _own_rows(parameter)
                    local_part(parameter).copy_(file.rows(name, start, stop))
        policy._start_adapters()
        return policy

    def adapted(self, lora: LoraConfig | None) -> Policy:
        """Itself, with new adapters in front of which everything is frozen; as it is without any."""
        if lora is not None:
            adapt(self.model, lora)
            self.lora = lora
            if not self._has_no_memory:
                self._start_adapters()
        return self

    def _start_adapters(self) -> None:
        for name, parameter in self.model.named_parameters():
            if self.lora is not None and is_adapter(name):
                start, stop = _own_rows(parameter)
                values = first_values(name, tuple(parameter.shape), self.lora)[start:stop]
                local_part(parameter.detach()).copy_(values)

    @property
    def _has_no_memory(self) -> bool:
        return next(self.parameters()).is_meta

    def published(self) -> Iterator[tuple[str, Tensor]]:
        """What others get, by sorted Hugging Face name: float32, whole, adapters merged into what they adapt.

        Every rank must ask, in step: a tensor at a time comes together.
        """
        for name in sorted(self.model.config.weight_shapes()):
            place, _, kind = name.rpartition(".")
            module = self.model.get_submodule(place)
            tensor = whole(getattr(module, kind).detach())
            if kind == "weight" and isinstance(module, Adapted):
                tensor = merged(tensor, whole(module.lora_a.detach()), whole(module.lora_b.detach()), module.scale)
            yield name, tensor

    def dealt(self, ranks: Ranks, scale: ScaleConfig) -> Policy:
        """Itself, its parameters dealt over `ranks` where there are several; with memory for them where it had none."""
        for layer in self.model.layers():
            layer.recomputes = scale.recompute_activations
        self.device, self.compute_dtype = ranks.device, scale.compute_dtype
        had_none = self._has_no_memory
        if ranks.has_group:
            self._shard(ranks, scale)
        if had_none:
            self.to_empty(device="cpu" if scale.offload else ranks.device)
        elif not ranks.has_group:
            self.to(ranks.device)
        return self

    def forward(self, bin_: Bin, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of a bin's trained tokens, float32 [sum of T] each."""
        tokens, rows, targets = (tensor.to(self.device) for tensor in (bin_.tokens, bin_.rows, bin_.targets))
        hidden = self.model(tokens, bin_.packing.to(self.device))
        return token_logprobs(hidden.index_select(0, rows), self.model.head, targets, temperature)

    def _shard(self, ranks: Ranks, scale: ScaleConfig) -> None:
        precision = MixedPrecisionPolicy(COMPUTE_DTYPES[scale.compute_dtype], reduce_dtype=torch.float32)
        pin_memory = ranks.device.type == "cuda"  # the host's pages are pinned for copies to and from a GPU
        offload = CPUOffloadPolicy(pin_memory=pin_memory) if scale.offload else OffloadPolicy()
        for module in (*self.model.layers(), self):
            # The root as well lets go of what it gathered: later passes must not see weights of before a step.
            fully_shard(
                module, mesh=ranks.mesh, reshard_after_forward=True, mp_policy=precision, offload_policy=offload
            )
            # Token shares are of the whole step, so gradients of ranks are summed and not averaged.
            cast(FSDPModule, module).set_gradient_divide_factor(1.0)
            cast(FSDPModule, module).set_force_sum_reduction_for_comms(True)


def local_part(tensor: Tensor) -> Tensor:
    """The rows of a tensor that this rank keeps; all of them where it isn't dealt."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All rows of a tensor: every rank must ask, in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _own_rows(parameter: Tensor) -> tuple[int, int]:
    """First and last row, exclusive, of what this rank keeps."""
    if not isinstance(parameter, DTensor):
        return 0, len(parameter)
    mesh = parameter.device_mesh
    each = -(-len(parameter) // mesh.size())
    start = min(len(parameter), mesh.get_local_rank() * each)
    return start, min(len(parameter), start + each)
