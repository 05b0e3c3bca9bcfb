"""A model's weights, written and read a tensor at a time: for models of which no process holds the whole.

In: tensors one after the other. Out: the folder that `protocol/weights.py` reads, byte for byte the same as
`save_checkpoint` makes of all tensors at once. Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from protocol.errors import MalformedFile
from protocol.files import atomic_file
from protocol.weights import ModelConfig, write_config
from protocol.weights_parts import WEIGHTS_FILE, check_part, parts_of

SAFETENSORS_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def write_weights(folder: Path, config: ModelConfig, dtype: torch.dtype, tensors: Iterable[Tensor]) -> None:
    """`config.json` and `model.safetensors` from one tensor after the other, so that only one is in memory.

    `tensors` come in the order of `sorted(config.weight_shapes())`, in any dtype; they are written in `dtype`.
    """
    write_config(folder, config, dtype)
    shapes = dict(sorted(config.weight_shapes().items()))
    with atomic_file(folder / WEIGHTS_FILE) as file:
        file.write(_safetensors_header(shapes, dtype))
        for (name, shape), tensor in zip(shapes.items(), tensors, strict=True):
            if tuple(tensor.shape) != shape:
                raise MalformedFile("these weights belong to another model", f"{name} is {tuple(tensor.shape)}")
            plain = tensor.detach().to("cpu", dtype).contiguous()
            file.write(plain.flatten().view(torch.uint8).numpy().data)


def _safetensors_header(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> bytes:
    """Length and header of a file whose tensors lie in the order of `shapes`. Source: the format of safetensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in shapes.items():
        end = start + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": SAFETENSORS_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


class WeightsFile:
    """A model folder's tensors, read a part at a time from the file, or the files, that they lie in.

    Example: `with WeightsFile(folder, config) as file: file.rows("model.norm.weight", 0, 8)`. Raises MalformedFile.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._folder = folder
        self._shapes = config.weight_shapes()

    def __enter__(self) -> WeightsFile:
        parts = parts_of(self._folder)
        self._file_of: dict[str, safe_open] = {}
        for name in parts:
            file, tensors = self._opened(self._folder / name)
            check_part(self._folder / name, tensors, parts)
            self._file_of |= dict.fromkeys(tensors, file)
        return self

    def __exit__(self, *_: object) -> None:
        del self._file_of

    def check(self) -> None:
        """Looks at names and shapes alone."""
        for name in self._shapes:
            self._part(name)

    def tensor(self, name: str) -> Tensor:
        """The whole of it, in the dtype it is stored in."""
        whole: Tensor = self._part(name)[:]
        return whole

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Rows of a tensor's first dimension, in the dtype they are stored in."""
        rows: Tensor = self._part(name)[start:stop]
        return rows

    def _part(self, name: str) -> Any:
        """safetensors' slice of the tensor, to be read from."""
        if name not in self._file_of:
            raise MalformedFile("these weights belong to another model", f"{self._folder} has no {name}")
        part = self._file_of[name].get_slice(name)  # type: ignore[no-untyped-call]
        if tuple(part.get_shape()) != self._shapes[name]:
            raise MalformedFile("these weights belong to another model", f"{name} is {part.get_shape()}")
        return part

    def _opened(self, path: Path) -> tuple[safe_open, Sequence[str]]:
        try:
            file = safe_open(path, framework="pt")
            return file, list(file.keys())  # type: ignore[no-untyped-call]
        except (OSError, SafetensorError) as error:
            raise MalformedFile(f"can't read weights from {path}", str(error), "fetch the file again") from error
