"""A model's weights, written and read a tensor at a time: for models of which no process holds the whole.

In: tensors one after the other. Out: the folder that `protocol/weights.py` reads, byte for byte the same as
`save_checkpoint` makes of all tensors at once. Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from protocol.errors import MalformedFile
from protocol.files import atomic_file
from protocol.weights import WEIGHTS_FILE, ModelConfig, write_config

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
    """A model folder's tensors, read a part at a time.

    Example: `with WeightsFile(folder, config) as file: file.rows("model.norm.weight", 0, 8)`. Raises MalformedFile.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._path = folder / WEIGHTS_FILE
        self._shapes = config.weight_shapes()

    def __enter__(self) -> WeightsFile:
        try:
            self._file = safe_open(self._path, framework="pt")
        except (OSError, SafetensorError) as error:
            todo = "fetch the file again"
            raise MalformedFile(f"can't read weights from {self._path}", str(error), todo) from error
        return self

    def __exit__(self, *_: object) -> None:
        del self._file

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Rows of a tensor's first dimension, in the dtype they are stored in."""
        try:
            part = self._file.get_slice(name)  # type: ignore[no-untyped-call]
            if tuple(part.get_shape()) != self._shapes[name]:
                raise MalformedFile("these weights belong to another model", f"{name} is {part.get_shape()}")
            rows: Tensor = part[start:stop]
        except SafetensorError as error:
            raise MalformedFile("these weights belong to another model", str(error)) from error
        return rows
