"""Targets: patches between policy versions, which come from whoever serves weights, and headers of weights files."""

from __future__ import annotations

from functools import cache

import numpy as np
import zstandard
from blake3 import blake3

from protocol.errors import MalformedFile, VerificationFailed
from protocol.shardcast import patch_plain
from protocol.shardcast.patch_blocks import SPARSE, decode_block
from protocol.shardcast.patch_coding import Changes, Words, number
from protocol.shardcast.patch_file import HASH_BYTES
from protocol.shardcast.patch_layout import Layout
from protocol.shardcast.patch_sparse import SparseBlock, Way
from protocol.shardcast.patches import apply_patches, decode, diff, write_changes
from tests.fuzz.config_targets import scratch
from tests.fuzz.target import Choices, Target
from tests.unit.protocol.shardcast.stored import Stored, Tensors, bf16, bf16_words, file_bytes, stepped, write

MAX_RESULT_BYTES = 1 << 16
NUM_WORDS = 300


@cache
def base() -> Tensors:
    rng = np.random.default_rng(0)
    return {
        "a": bf16(rng.normal(0, 0.05, (40, 16))),
        "empty": Stored("F32", (0, 3), b""),
        "odd": Stored("U8", (3,), b"\1\2\3"),
        "b": bf16(rng.normal(0, 1, 70)),
        "c": Stored("F64", (5,), rng.normal(size=5).tobytes()),
    }


def patch_seeds() -> list[bytes]:
    """Patches without the hash at their end: sparse, dense, with a tensor carried whole, with nothing."""
    few = base() | {"a": stepped(base()["a"], 0.02), "b": stepped(base()["b"], 0.1)}
    many = base() | {"a": stepped(base()["a"], 0.9), "c": Stored("F64", (5,), bytes(40))}
    other = few | {"b": bf16(np.ones((7, 10))), "odd": Stored("I8", (3,), b"\3\2\1")}
    seeds = []
    for new, block_bytes in ((few, 256), (many, 4096), (other, 8192), (base(), 64)):
        old_path, new_path, path = write(scratch() / "base", base()), write(scratch() / "new", new), scratch() / "patch"
        diff(old_path, new_path, path, base_version=0, policy_version=1, block_bytes=block_bytes)
        seeds.append(path.read_bytes()[:-HASH_BYTES])
    return seeds


def apply_patch(data: bytes) -> None:
    """Any patch is refused, or makes the same of a file and of live tensors, and leaves the base as it is."""
    path, before = scratch() / "patch", file_bytes(base())
    path.write_bytes(data + blake3(data).digest())
    old, result = write(scratch() / "base", base()), scratch() / "result"
    result.unlink(missing_ok=True)
    live = {name: np.frombuffer(bytearray(tensor.data), dtype=np.uint8) for name, tensor in base().items()}
    try:
        apply_patches(old, [path], result, check=False, max_bytes=MAX_RESULT_BYTES)
        write_changes(decode(path, live, check=False), live)
    finally:
        assert old.read_bytes() == before
    with result.open("rb") as file:
        layout = Layout.of_file(file)
    stored = result.read_bytes()[layout.file_bytes - layout.data_bytes :]
    for tensor in layout.tensors:
        assert stored[tensor.start : tensor.stop] == live[tensor.name].tobytes()


@cache
def old_words(word_bytes: int) -> Words:
    rng = np.random.default_rng(word_bytes)
    if word_bytes == 2:
        return bf16_words(rng, NUM_WORDS, 0.05)
    return rng.integers(0, 255, NUM_WORDS).astype(f"u{word_bytes}")


def read_block(data: bytes) -> None:
    """A byte of word size, then a block."""
    choices = Choices(data)
    old = old_words(choices.pick((1, 2, 4, 8)))
    _check_inside(decode_block(choices.rest(), old), old)


def read_built_block(data: bytes) -> None:
    """A sparse block whose frames unfold as they should: both ways to read it agree."""
    from protocol.shardcast import patch_compiled  # here, where it isn't instrumented: numba can't compile what is

    choices, old = Choices(data), old_words(2)
    num_classes = 1 + choices.below(8)
    thresholds = sorted({choices.integer(2) for _ in range(num_classes - 1)})
    rows = [(choices.below(10), choices.below(60)) for _ in range(len(thresholds) + 1)]
    symbols = bytes(choices.byte() for _ in range(sum(count for _, count in rows)))
    wide = bytes(choices.byte() for _ in range(2 * sum(symbol & 7 == 6 for symbol in symbols)))
    frames = [zstandard.compress(symbols), zstandard.compress(wide) if wide else b""]
    head = bytes([len(rows)]) + np.array(thresholds, dtype="<u2").tobytes()
    head += b"".join(bytes([shift]) + number(count) for shift, count in rows)
    low = bytes(choices.byte() for _ in range(_low_bytes(rows, symbols)))
    body = head + number(len(frames[0])) + number(len(frames[1])) + b"".join(frames) + low
    block = SparseBlock.read(body, len(old), old.dtype)
    found = [_located(way, block, old) for way in (patch_compiled, patch_plain)]
    assert found[0] == found[1]
    _check_inside(decode_block(bytes([SPARSE]) + body, old), old)


def _low_bytes(rows: list[tuple[int, int]], symbols: bytes) -> int:
    place = num_bits = 0
    for shift, count in rows:
        num_bits += shift * sum(symbol & 7 != 7 for symbol in symbols[place : place + count])
        place += count
    return -(-num_bits // 8)


def _located(way: Way, block: SparseBlock, old: Words) -> dict[int, int] | None:
    try:
        changes = way.located(block, old)
    except MalformedFile:
        return None
    return dict(zip(changes.positions.tolist(), changes.values.tolist(), strict=True))


def _check_inside(changes: Changes, old: Words) -> None:
    assert len(np.unique(changes.positions)) == len(changes.positions) == len(changes.values)
    assert not len(changes.positions) or changes.positions.max() < len(old)
    assert changes.values.dtype == old.dtype


def read_layout(data: bytes) -> None:
    """Spans cover what is laid out, without a gap, in words that fit."""
    layout = Layout.read(data)
    if layout.data_bytes > MAX_RESULT_BYTES:
        return
    end = 0
    for span in layout.spans(64):
        assert span.start == end < span.stop
        assert (span.stop - span.start) % span.word_bytes == 0
        end = span.stop
    assert end == layout.data_bytes


def layout_seeds() -> list[bytes]:
    with write(scratch() / "base", base()).open("rb") as file:
        return [Layout.of_file(file).text]


PATCH_TARGETS = (
    Target("patch", apply_patch, (VerificationFailed,), patch_seeds),
    Target("patch_block", read_block, (MalformedFile,), lambda: [bytes([1, 0]), bytes([1, 2, *range(40)])]),
    Target("patch_sparse", read_built_block, (MalformedFile,), lambda: [bytes(range(0, 256, 3)), bytes(64)]),
    Target("patch_layout", read_layout, (MalformedFile,), layout_seeds, is_json=True),
)
