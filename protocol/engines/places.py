"""Where an engine keeps each weight, so that single values can be written there: plain, joined, packed or in panels.

In: a matrix [R, C] as it lies in the engine's memory. Out: `Place`, whose element (r, c) is at `rows[r] + columns[c]`:
every layout that engines use is of this form. `Update` writes a patch's changes into all places of their weights: it
first looks whether each value that is to change lies there as the patch's base has it, and only then writes any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from protocol.errors import VerificationFailed
from protocol.kernels import are_enabled
from protocol.shardcast.patch_coding import Words
from protocol.shardcast.patches import TensorChanges
from protocol.weights import ModelConfig

FLOATS = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
"""By the names that a weights file has for them."""
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""What the bits of a float of so many bytes are compared as: a NaN is the same as itself."""
LOAD = "load the version whole"


@dataclass(frozen=True, eq=False)
class Place:
    """`memory` is 1-D, in the dtype that the engine holds the weight in; `rows` int64 [R], `columns` int64 [C]."""

    memory: Tensor
    rows: Tensor
    columns: Tensor

    @classmethod
    def plain(cls, tensor: Tensor) -> Place:
        """A matrix in C order, or a vector, as one column."""
        num_columns = math.prod(tensor.shape[1:])
        return cls(tensor.detach().view(-1), torch.arange(len(tensor)) * num_columns, torch.arange(num_columns))

    def part(self, first_row: int, num_rows: int) -> Place:
        """The place of some of the rows."""
        return Place(self.memory, self.rows[first_row : first_row + num_rows], self.columns)

    def holds(self, positions: Tensor, before: Tensor) -> bool:
        """Whether the elements at int64 [N] flat positions are `before` [N], bits as integers."""
        memory = as_integers(self.memory)
        if self._is_compiled:
            from protocol.engines import place_kernels

            ask = place_kernels.holds_16 if memory.itemsize == 2 else place_kernels.holds_32
            return ask(*(x.numpy() for x in (memory, self.rows, self.columns, positions, before)))
        return torch.equal(memory[self.offsets(positions).to(memory.device)], before.to(memory.device))

    def put(self, positions: Tensor, values: Tensor) -> None:
        """Make the elements at int64 [N] flat positions `values` [N], bits as integers."""
        memory = as_integers(self.memory)
        if self._is_compiled:
            from protocol.engines import place_kernels

            write = place_kernels.put_16 if memory.itemsize == 2 else place_kernels.put_32
            write(*(x.numpy() for x in (memory, self.rows, self.columns, positions, values)))
        else:
            memory[self.offsets(positions).to(memory.device)] = values.to(memory.device)

    @property
    def _is_compiled(self) -> bool:
        return self.memory.is_cpu and self.memory.itemsize in (2, 4) and are_enabled()

    def offsets(self, positions: Tensor) -> Tensor:
        """Where in `memory` the elements at int64 [N] flat positions of the matrix are."""
        row = torch.div(positions, len(self.columns), rounding_mode="floor")
        return self.rows[row] + self.columns[positions - row * len(self.columns)]


Places = Mapping[str, Sequence[Place]]
"""Of each weight, by its Hugging Face name."""


def parted(whole: Place, names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Place]]:
    """The places of weights that lie one below the other in a larger one."""
    start = 0
    for name in names:
        yield name, whole.part(start, shapes[name][0])
        start += shapes[name][0]


class Update:
    """Example: `Update(changes, places, torch.bfloat16).write()`, of an engine that computes in bfloat16.

    Raises VerificationFailed, before anything is written, where a value that changes isn't as the changes' base has it.
    """

    def __init__(self, changes: Sequence[TensorChanges], places: Places, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._writes: list[tuple[Place, Tensor, Tensor]] = []
        for change in changes:
            if change.name not in places or change.dtype not in FLOATS:
                why = f"{change.name:.100} ({change.dtype}) isn't one of its weights"
                raise VerificationFailed("the patch is for another model than the engine's", why, LOAD)
            for place in places[change.name]:
                self._prepare(change, place)

    def write(self) -> None:
        """All changes, each in all of its places."""
        for place, positions, values in self._writes:
            place.put(positions, values)

    def _prepare(self, change: TensorChanges, place: Place) -> None:
        positions = torch.from_numpy(change.positions)
        is_inside = int(positions.max()) < len(place.rows) * len(place.columns)
        if not is_inside or not place.holds(positions, self._held(change.before, change.dtype, place)):
            why = f"{change.name:.100} differs from the version that the patch builds on"
            raise VerificationFailed("the engine holds other weights than the patch is for", why, LOAD)
        self._writes.append((place, positions, self._held(change.values, change.dtype, place)))

    def _held(self, words: Words, dtype: str, place: Place) -> Tensor:
        """A file's values as a place holds them, bits as integers."""
        stored = torch.from_numpy(words.view(f"i{words.itemsize}")).view(FLOATS[dtype])
        return as_integers(stored.to(self._dtype).to(place.memory.dtype))


def require_same_model(held: Path, folder: Path) -> None:
    """Raises VerificationFailed unless both folders have the same configuration."""
    if ModelConfig.load(held) != ModelConfig.load(folder):
        raise VerificationFailed("a patch can't change the model's configuration", f"{held} and {folder} differ", LOAD)


def as_integers(tensor: Tensor) -> Tensor:
    """The same memory, its bits as integers."""
    return tensor.view(INTEGERS[tensor.itemsize])
