"""Patches between safetensors files: the result is the new file to the bit, or there is none."""

from __future__ import annotations

import json
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
import zstandard
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from protocol.errors import MalformedFile, VerificationFailed
from protocol.shardcast.patch_file import HASH_BYTES, PatchReader, read_header
from protocol.shardcast.patch_layout import Layout
from protocol.shardcast.patches import PatchSummary, apply_patches, decode, diff, file_hash, write_changes
from tests.unit.protocol.shardcast.stored import Stored, Tensors, bf16, stepped, versions, write

MODEL: Tensors = {
    "embed": bf16(np.random.default_rng(0).normal(0, 0.05, (300, 32))),
    "norm": bf16(np.ones(32)),
    "scale": Stored("F32", (), np.float32(2).tobytes()),
}


def later(tensors: Tensors, seed: int = 1) -> Tensors:
    """The next version."""
    return tensors | {"embed": stepped(tensors["embed"], 0.01, seed), "scale": Stored("F32", (), b"\0\0\1\x40")}


def make(folder: Path, old: Tensors, new: Tensors, number: int = 1, block_bytes: int = 4096) -> PatchSummary:
    """`v0`, `v1` and the patch `p1` (or as `number` says) in the folder."""
    base, result = write(folder / f"v{number - 1}", old), write(folder / f"v{number}", new)
    versions_of = {"base_version": number - 1, "policy_version": number}
    return diff(base, result, folder / f"p{number}", **versions_of, block_bytes=block_bytes)


def check_same(folder: Path, patches: list[int], first: int = 0) -> None:
    apply_patches(folder / f"v{first}", [folder / f"p{number}" for number in patches], folder / "result")
    assert (folder / "result").read_bytes() == (folder / f"v{patches[-1]}").read_bytes()


def arrays(tensors: Tensors) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(bytearray(tensor.data), dtype=np.uint8) for name, tensor in tensors.items()}


@given(versions(), st.sampled_from([8, 64, 4096]))
def test_any_version_comes_back_to_the_bit(pair: tuple[Tensors, Tensors], block_bytes: int) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        summary = make(folder, *pair, block_bytes=block_bytes)
        check_same(folder, [1])
        assert summary.patch_bytes == (folder / "p1").stat().st_size
        assert summary.header == read_header(folder / "p1")


@given(versions(), st.sampled_from([8, 4096]))
def test_live_tensors_become_the_new_version_where_they_have_its_shapes(
    pair: tuple[Tensors, Tensors], block_bytes: int
) -> None:
    old, new = pair
    live = arrays(old)
    fits = all(len(old[name].data) == len(tensor.data) for name, tensor in new.items() if name in old)
    with TemporaryDirectory() as name:
        make(Path(name), old, new, block_bytes=block_bytes)
        if not fits or not set(new) <= set(old):
            with pytest.raises(VerificationFailed, match="isn't for these tensors"):
                decode(Path(name) / "p1", live)
            return
        changes = decode(Path(name) / "p1", live)
    assert all(live[name].tobytes() == old[name].data for name in old)
    write_changes(changes, live)
    assert all(live[name].tobytes() == tensor.data for name, tensor in new.items())


def test_a_patch_of_few_changes_is_small(tmp_path: Path) -> None:
    old = MODEL | {"embed": bf16(np.random.default_rng(0).normal(0, 0.05, (1 << 19,)))}
    summary = make(tmp_path, old, old | {"embed": stepped(old["embed"], 0.01)}, block_bytes=1 << 20)
    assert summary.num_changed == pytest.approx(0.01 * summary.num_words, rel=0.1)
    assert summary.patch_bytes < summary.header.result_bytes / 120
    check_same(tmp_path, [1])


def test_a_chain_is_applied_in_one_go(tmp_path: Path) -> None:
    model = MODEL
    for number in (1, 2, 3):
        following = later(model, number)
        make(tmp_path, model, following, number)
        model = following
    check_same(tmp_path, [1, 2, 3])
    check_same(tmp_path, [2, 3], first=1)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_chain_goes_on_past_a_tensor_that_is_new(tmp_path: Path) -> None:
    second = later(MODEL) | {"added": bf16(np.arange(7.0))}
    third = {name: tensor for name, tensor in later(second, 2).items() if name != "norm"}
    make(tmp_path, MODEL, later(MODEL), 1)
    make(tmp_path, later(MODEL), second, 2)
    make(tmp_path, second, third, 3)
    make(tmp_path, third, later(third, 4), 4)
    assert read_header(tmp_path / "p2").whole == ("added",)
    check_same(tmp_path, [1, 2, 3, 4])


@pytest.mark.parametrize("order", [[], [2, 1], [1, 3], [2]])
def test_patches_that_are_no_chain_from_this_base_are_refused(tmp_path: Path, order: list[int]) -> None:
    model = MODEL
    for number in (1, 2, 3):
        make(tmp_path, model, later(model, number), number)
        model = later(model, number)
    with pytest.raises(VerificationFailed):
        apply_patches(tmp_path / "v0", [tmp_path / f"p{number}" for number in order], tmp_path / "result")
    assert not (tmp_path / "result").exists()


def test_a_base_that_lost_a_bit_is_told_from_a_patch_that_lies(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    damaged = bytearray((tmp_path / "v0").read_bytes())
    damaged[-30] ^= 1
    (tmp_path / "v0").write_bytes(damaged)
    with pytest.raises(VerificationFailed, match="isn't version 0's file, or has changed"):
        apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result")
    write(tmp_path / "v0", MODEL)
    rewrite(tmp_path / "p1", lambda header: header | {"result_hash": "0x" + "00" * 32})
    with pytest.raises(VerificationFailed, match="doesn't make what it promises"):
        apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result")
    assert not (tmp_path / "result").exists()
    apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result", check=False)
    assert file_hash(tmp_path / "result") == file_hash(tmp_path / "v1")


def test_a_base_with_other_tensors_is_refused(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    other = write(tmp_path / "other", {name: tensor for name, tensor in MODEL.items() if name != "norm"})
    with pytest.raises(VerificationFailed, match="isn't version 0's file"):
        apply_patches(other, [tmp_path / "p1"], tmp_path / "result")


def test_every_byte_of_a_patch_counts(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    honest = (tmp_path / "p1").read_bytes()
    for place in range(0, len(honest), 7):
        damaged = bytearray(honest)
        damaged[place] ^= 1 << place % 8
        (tmp_path / "p1").write_bytes(damaged)
        with pytest.raises(VerificationFailed):
            apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result", check=False)
    for end in (0, 7, 11, 100, len(honest) - 1):
        (tmp_path / "p1").write_bytes(honest[:end])
        with pytest.raises(MalformedFile):
            apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result", check=False)
    (tmp_path / "p1").write_bytes(honest + b"\0")
    with pytest.raises(MalformedFile, match="last bytes"):
        apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result", check=False)
    assert not (tmp_path / "result").exists()


def rewrite(
    path: Path,
    change: Callable[[dict[str, object]], dict[str, object]],
    layout: Callable[[bytes], bytes] = lambda frame: frame,
) -> None:
    """A patch with another header or layout, and the hash that then belongs at its end."""
    data = path.read_bytes()[:-HASH_BYTES]
    parts, place = [], 8
    for _ in range(2):
        (size,) = struct.unpack_from("<I", data, place)
        parts.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    header = json.dumps(change(json.loads(parts[0]))).encode()
    pieces = [struct.pack("<I", len(part)) + part for part in (header, layout(parts[1]))]
    data = data[:8] + b"".join(pieces) + data[place:]
    path.write_bytes(data + blake3(data).digest())


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"schema_version": 2}, "its header"),
        ({"block_bytes": 7}, "its header"),
        ({"block_bytes": 1 << 30}, "its header"),
        ({"base_hash": "0x00"}, "its header"),
        ({"extra": 1}, "its header"),
        ({"result_bytes": 1 << 40}, "announced"),
        ({"whole": ["nothing"]}, "isn't laid out"),
    ],
)
def test_headers_that_make_no_sense_are_refused(tmp_path: Path, change: dict[str, object], fault: str) -> None:
    make(tmp_path, MODEL, later(MODEL))
    rewrite(tmp_path / "p1", lambda header: header | change)
    with pytest.raises(MalformedFile, match=fault):
        read_header(tmp_path / "p1")


def test_a_layout_of_petabytes_takes_none(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    text = json.dumps({"x": {"dtype": "U8", "shape": [1 << 50], "data_offsets": [0, 1 << 50]}}).encode()
    size = 8 + len(text) + (1 << 50)
    rewrite(tmp_path / "p1", lambda header: header | {"result_bytes": size}, lambda frame: zstandard.compress(text))
    with pytest.raises(VerificationFailed, match="too large a file"):
        apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result")
    rewrite(tmp_path / "p1", lambda header: header, lambda frame: zstandard.compress(bytes(1 << 30)))
    with pytest.raises(MalformedFile, match="a layout of 1073741824 bytes"):
        read_header(tmp_path / "p1")


def row(dtype: object = "U8", shape: object = (2,), offsets: object = (0, 2)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ([], "no table"),
        ({"a": 1}, "other fields"),
        ({"a": row() | {"x": 1}}, "other fields"),
        ({"a": row("U9")}, "of dtype"),
        ({"a": row(["U8"])}, "of dtype"),
        ({"a": row(shape=[-2])}, "has shape"),
        ({"a": row(shape=[2.0])}, "has shape"),
        ({"a": row(shape=[True, 2])}, "has shape"),
        ({"a": row(shape=[1] * 65)}, "has shape"),
        ({"a": row(offsets=[0])}, "has shape"),
        ({"a": row(shape=[3])}, "is at"),
        ({"a": row(offsets=[1, 3])}, "begins at"),
        ({"a": row(), "b": row()}, "begins at"),
        ({"a": row("F4", [3], [0, 1])}, "is at"),
    ],
)
def test_layouts_that_make_no_sense_are_refused(document: object, fault: str) -> None:
    with pytest.raises(MalformedFile, match=fault):
        Layout.read(json.dumps(document).encode())


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 100_000, b'{"a":1,"a":2}', b'{"a":' + b"9" * 5000 + b"}"])
def test_headers_that_are_no_json_are_refused(text: bytes) -> None:
    """However deep the interpreter would follow one: libraries raise that limit."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        _refuse_as_json(text)
    finally:
        sys.setrecursionlimit(limit)


def _refuse_as_json(text: bytes) -> None:
    with pytest.raises(MalformedFile, match="no JSON"):
        Layout.read(text)


def test_a_file_that_is_cut_short_is_no_base(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    whole = (tmp_path / "v0").read_bytes()
    for end in (0, 5, 20, len(whole) - 1):
        (tmp_path / "v0").write_bytes(whole[:end])
        with pytest.raises(MalformedFile):
            apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result")


def test_tied_torch_tensors_are_updated_in_place(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(64, 16, generator=generator).bfloat16()
    old = {"embed": head, "head": head.clone(), "bias": torch.zeros(3, dtype=torch.float64)}
    new = {"embed": head + 2.0**-6, "head": head + 2.0**-6, "bias": torch.tensor([0.0, -0.0, float("nan")]).double()}
    save_file(old, tmp_path / "v0")
    save_file(new, tmp_path / "v1")
    diff(tmp_path / "v0", tmp_path / "v1", tmp_path / "p1", base_version=0, policy_version=1)
    live = {"embed": head, "head": head, "bias": old["bias"]}
    views = {name: tensor.view(torch.uint8).numpy() for name, tensor in live.items()}
    write_changes(decode(tmp_path / "p1", views), views)
    promised = load_file(tmp_path / "v1")
    for name, tensor in live.items():
        assert tensor.view(torch.uint8).equal(promised[name].view(torch.uint8))


def test_live_tensors_that_are_no_base_stay_as_they_are(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    live = arrays(MODEL)
    live["norm"][0] ^= 1
    before = {name: array.copy() for name, array in live.items()}
    with pytest.raises(VerificationFailed, match="isn't for these tensors"):
        decode(tmp_path / "p1", live)
    assert all(np.array_equal(live[name], before[name]) for name in live)


def test_live_tensors_out_of_order_are_an_error(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    live = arrays(MODEL)
    live["embed"] = live["embed"].reshape(2, -1).T
    with pytest.raises(ValueError, match="C order"):
        decode(tmp_path / "p1", live)


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    peaks = []
    for num_values in (1 << 18, 1 << 20):
        old = {"embed": bf16(np.random.default_rng(0).normal(0, 0.05, num_values))}
        write(tmp_path / "v0", old)
        write(tmp_path / "v1", {"embed": stepped(old["embed"], 0.01)})
        versions_of = {"base_version": 0, "policy_version": 1}
        tracemalloc.start()
        diff(tmp_path / "v0", tmp_path / "v1", tmp_path / "p1", **versions_of, block_bytes=1 << 16)
        apply_patches(tmp_path / "v0", [tmp_path / "p1"], tmp_path / "result")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + (1 << 17)


def test_a_patch_can_be_read_as_a_stream(tmp_path: Path) -> None:
    make(tmp_path, MODEL, later(MODEL))
    with PatchReader.open(tmp_path / "p1") as patch:
        spans = list(patch.spans)
        assert len(list(patch.blocks())) == len(spans) > 1
        assert sum(span.stop - span.start for span in spans) == patch.layout.data_bytes
