"""Patches in the running vLLM model: values written where vLLM keeps weights, packed copies made anew.

    changes ──▶ weights that vLLM keeps plain     written in place (on a GPU: all of them)
            ──▶ weights that vLLM packs away      packed again from the base's values and the changes (on a processor:
                                                  all matrices, whose packed copies vLLM 0.32 lets nobody write to)

In: vLLM's model, a configuration, a base file, changes that were checked against it. Nothing of the model is changed
before `write`. Names and the order of joined weights: vllm/model_executor/models/llama.py and qwen2.py of vLLM 0.32.
Nothing here needs vLLM.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from protocol.engines.places import LOAD, Place, Update, as_integers, parted
from protocol.errors import ProofpoolError
from protocol.shardcast.patches import TensorChanges
from protocol.weights import ModelConfig

JOINED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
"""Modules whose weights vLLM keeps one below the other, in this order."""


class LiveUpdate:
    """Raises VerificationFailed where changes don't fit what the model holds. `write` makes them."""

    def __init__(self, model: nn.Module, config: ModelConfig, base: Path, changes: Sequence[TensorChanges]) -> None:
        self._model = model
        self._base = base
        self._shapes = config.weight_shapes()
        self._groups = _groups(self._shapes)
        self._dtype = self._parameter("model.norm.weight").dtype
        self._by_name = defaultdict[str, list[TensorChanges]](list)
        for change in changes:
            self._by_name[change.name].append(change)
        self._changed_groups = [group for group, names in self._groups.items() if self._by_name.keys() & set(names)]
        self._packed = [group for group in self._changed_groups if not self._parameter(group).numel()]
        packed_away = {name for group in self._packed for name in self._groups[group]}
        plain = [change for change in changes if change.name not in packed_away]
        self._update = Update(plain, dict(self._plain_places()), self._dtype)

    def write(self) -> None:
        self._update.write()
        for group in self._packed:
            self._pack_again(group)
        self._pack_head_again()

    def _plain_places(self) -> Iterator[tuple[str, list[Place]]]:
        for group, names in self._groups.items():
            parameter = self._parameter(group)
            if parameter.numel():
                for name, place in parted(Place.plain(parameter.detach()), names, self._shapes):
                    yield name, [place]

    def _pack_again(self, group: str) -> None:
        """A module that threw its plain weight away gets it once more, and packs it as it did when it was loaded."""
        module: Any = self._model.get_submodule(group.rpartition(".")[0])
        with safe_open(self._base, "pt") as file:
            parts = [self._with_changes(name, file.get_tensor(name)) for name in self._groups[group]]
        module.weight = nn.Parameter(torch.cat(parts), requires_grad=False)
        _pack(module)

    def _with_changes(self, name: str, stored: Tensor) -> Tensor:
        """A tensor of the base with its changes, in the model's precision."""
        values = stored.clone()
        words = as_integers(values).view(-1)
        for change in self._by_name[name]:
            words[torch.from_numpy(change.positions)] = torch.from_numpy(change.values.view(f"i{words.itemsize}"))
        return values.to(self._dtype)

    def _pack_head_again(self) -> None:
        """The head keeps its plain weight, the embedding's own where they are tied, and may pack a copy beside it."""
        head: Any = self._model.get_submodule("lm_head")
        tied_or_own = [group for group in self._changed_groups if self._parameter(group) is head.weight]
        if tied_or_own and hasattr(head, "cpu_linear"):
            _pack(head)

    def _parameter(self, name: str) -> nn.Parameter:
        return self._model.get_parameter(name)


def _pack(module: Any) -> None:
    before = module.cpu_linear
    module.quant_method.process_weights_after_loading(module)
    if module.cpu_linear is before:
        raise ProofpoolError("vLLM went on with an old packed matrix", type(module).__name__, LOAD)


def _groups(names: Iterable[str]) -> dict[str, list[str]]:
    """vLLM's parameters, each with the weights that it is made of, in order."""
    groups = defaultdict[str, list[str]](list)
    for name in names:
        module, kind = name.split(".")[-2:]
        groups[f"{name.removesuffix(f'{module}.{kind}')}{JOINED.get(module, module)}.{kind}"].append(name)
    return dict(groups)
