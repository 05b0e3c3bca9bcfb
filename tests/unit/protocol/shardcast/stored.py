"""Safetensors files of any dtype, and tensors that change in ways like an optimizer's and unlike it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from protocol.shardcast.patch_layout import BITS


class Stored(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


Tensors = dict[str, Stored]


def file_bytes(tensors: Mapping[str, Stored]) -> bytes:
    """The file that holds these, in their order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, tensor in tensors.items():
        stop = start + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.data for tensor in tensors.values())


def write(path: Path, tensors: Mapping[str, Stored]) -> Path:
    path.write_bytes(file_bytes(tensors))
    return path


def bf16(values: np.ndarray) -> Stored:
    """The upper halves of float32 values, which are bf16 values rounded towards zero."""
    words = (np.asarray(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return Stored("BF16", values.shape, words.tobytes())


def stepped(tensor: Stored, share: float, seed: int = 0) -> Stored:
    """A bf16 tensor with a share of its values moved to the next one up or down."""
    rng, words = np.random.default_rng(seed), np.frombuffer(tensor.data, dtype=np.uint16).copy()
    moved = rng.random(len(words)) < share
    words[moved] += rng.choice(np.array([1, 65535], dtype=np.uint16), int(moved.sum()))
    return tensor._replace(data=words.tobytes())


SPECIAL = (0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x0001, 0x8001, 0x3F80, 0x7F7F)
"""bf16: both zeros, infinities, NaNs, subnormals, one, the largest."""


@st.composite
def blocks(draw: st.DrawFn, word_bytes: int, max_words: int = 700) -> tuple[np.ndarray, np.ndarray]:
    """Words before and after: of any values or of few magnitudes, none to all changed, by a little or by anything."""
    dtype, num_words = np.dtype(f"u{word_bytes}"), draw(st.integers(1, max_words))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    old = rng.integers(0, np.iinfo(dtype).max, num_words, dtype=dtype, endpoint=True)
    if word_bytes == 2 and draw(st.booleans()):
        old = bf16_words(rng, num_words, draw(st.sampled_from([1.0, 1e-3, 1e-38, 1e30])))
    new, share = old.copy(), draw(st.sampled_from([0.0, 0.002, 0.02, 0.2, 0.24, 0.5, 1.0]))
    moved = rng.random(num_words) < share
    reach = draw(st.sampled_from([1, 3, 4, 200, int(np.iinfo(dtype).max)]))
    steps = rng.integers(0, reach, int(moved.sum()), dtype=dtype, endpoint=True)
    new[moved] += np.where(rng.random(len(steps)) < 0.5, steps, 0 - steps)
    return old, new


def bf16_words(rng: np.random.Generator, num_words: int, scale: float) -> np.ndarray:
    """Normally distributed bf16 values, with a few special ones."""
    words = (rng.normal(0, scale, num_words).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    places = rng.random(num_words) < 0.02
    words[places] = rng.choice(np.array(SPECIAL, dtype=np.uint16), int(places.sum()))
    return words


@st.composite
def stored(draw: st.DrawFn) -> Stored:
    dtype = draw(st.sampled_from(sorted(BITS)))
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 8, 17]), max_size=3)))
    num_bits = int(np.prod(shape, dtype=np.int64)) * BITS[dtype]
    if num_bits % 8:
        shape, num_bits = (*shape, 8), 8 * num_bits
    return Stored(dtype, shape, np.random.default_rng(draw(st.integers(0, 99))).bytes(num_bits // 8))


@st.composite
def versions(draw: st.DrawFn) -> tuple[Tensors, Tensors]:
    """A model's tensors, and later ones: changed, replaced, gone, new, in another order."""
    old = draw(st.dictionaries(st.text(max_size=6), stored(), max_size=6).filter(lambda d: "__metadata__" not in d))
    new = {}
    for name, tensor in draw(st.permutations(sorted(old.items()))):
        action = draw(st.sampled_from(["same", "changed", "changed", "replaced", "gone"]))
        if action == "same":
            new[name] = tensor
        elif action == "changed":
            data = bytearray(tensor.data)
            for _ in range(draw(st.integers(0, 4)) if data else 0):
                data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
            new[name] = tensor._replace(data=bytes(data))
        elif action == "replaced":
            new[name] = draw(stored())
    for name in draw(st.lists(st.sampled_from(["new", "newer"]), unique=True)):
        new[name] = draw(stored())
    return old, new


def bf16_tensors(seed: int) -> Tensors:
    """A small model's."""
    rng = np.random.default_rng(seed)
    return {"a": bf16(rng.normal(0, 0.05, (200, 50))), "b": bf16(rng.normal(0, 0.05, (3000,)))}
