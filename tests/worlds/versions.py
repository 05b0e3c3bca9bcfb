"""Policy versions of one model, each with some of the values changed, and the patches between neighbours, both ways.

In: a configuration, weights. Out: folders as a worker has them, and patch files, under one folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from protocol.shardcast.patches import diff
from protocol.weights import ModelConfig, save_checkpoint
from protocol.weights_parts import WEIGHTS_FILE

CHANGED_SHARE = 0.02


class Versions:
    """Example: `engine.apply(versions.chain(0, 2), versions.folder(2))`."""

    def __init__(
        self,
        home: Path,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        num_versions: int = 4,
        share: float = CHANGED_SHARE,
        seed: int = 0,
        companions: Sequence[Path] = (),
    ) -> None:
        self.home = home
        self.config = config
        self._source, current = torch.Generator().manual_seed(seed), dict(weights)
        for number in range(num_versions):
            save_checkpoint(self.folder(number), config, current, companions)
            current = {name: self._changed(tensor, share) for name, tensor in current.items()}
        for number in range(num_versions - 1):
            self._diff(number, number + 1)
            self._diff(number + 1, number)

    def folder(self, number: int) -> Path:
        return self.home / f"v{number}"

    def patch(self, base: int, number: int) -> Path:
        """What makes a version of its neighbour."""
        return self.home / f"{base}-{number}.patch"

    def chain(self, base: int, number: int) -> list[Path]:
        """What makes any version of any other."""
        step = 1 if number > base else -1
        return [self.patch(at, at + step) for at in range(base, number, step)]

    def _diff(self, base: int, number: int) -> None:
        old, new = (self.folder(version) / WEIGHTS_FILE for version in (base, number))
        diff(old, new, self.patch(base, number), base_version=base, policy_version=number)

    def _changed(self, tensor: Tensor, share: float) -> Tensor:
        """Some values, at least one, a quarter larger or smaller."""
        is_changed = torch.rand(tensor.shape, generator=self._source) < share
        is_changed.view(-1)[int(torch.randint(tensor.numel(), (1,), generator=self._source))] = True
        larger = torch.rand(tensor.shape, generator=self._source) < 0.5
        return torch.where(is_changed, tensor * torch.where(larger, 1.25, 0.75).to(tensor.dtype), tensor)
