"""Blocks of a patch: any words come back to the bit, and bytes that make no sense are refused without harm."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol import kernels
from protocol.errors import MalformedFile
from protocol.shardcast.patch_blocks import DENSE, SPARSE, UNCHANGED, decode_block, encode_block, max_block_bytes
from protocol.shardcast.patch_coding import number
from protocol.shardcast.patch_symbols import SKIP, WIDE
from tests.unit.protocol.shardcast.stored import bf16_words, blocks

BF16_OCTAVE = 1 << 7
SOME = np.arange(100, dtype=np.uint16)


def patched(data: bytes, old: np.ndarray) -> np.ndarray:
    words = old.copy()
    decode_block(data, old).write(words)
    return words


def sparse(symbols: list[int], low: bytes = b"", *, shift: int = 0, wide: bytes = b"") -> bytes:
    """A block of one class, by hand."""
    frame = zstandard.ZstdCompressor().compress(bytes(symbols))
    head = bytes([SPARSE]) + b"\1" + bytes([shift]) + number(len(symbols))
    return head + number(len(frame)) + number(len(wide)) + frame + wide + low


@given(st.sampled_from([1, 2, 4, 8]).flatmap(blocks), st.sampled_from([0, BF16_OCTAVE, 1 << 10]))
def test_words_come_back_to_the_bit(pair: tuple[np.ndarray, np.ndarray], octave: int) -> None:
    old, new = pair
    block = encode_block(old, new, octave if old.itemsize == 2 else 0)
    assert block.num_changed == np.count_nonzero(old != new)
    assert len(block.data) <= max_block_bytes(len(old), old.itemsize)
    before = old.copy()
    assert patched(block.data, old).tobytes() == new.tobytes()
    assert old.tobytes() == before.tobytes()


@given(blocks(2), st.sampled_from([0, BF16_OCTAVE]))
def test_compiled_and_plain_passes_make_the_same_bytes_and_read_them_alike(
    pair: tuple[np.ndarray, np.ndarray], octave: int
) -> None:
    old, new = pair
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(kernels.VARIABLE, raising=False)
        compiled = encode_block(old, new, octave)
        patch.setenv(kernels.VARIABLE, "plain")
        assert encode_block(old, new, octave) == compiled
        assert patched(compiled.data, old).tobytes() == new.tobytes()


@pytest.mark.parametrize("num_words", [1, 63, 64, 65, 1 << 17])
@pytest.mark.parametrize("place", [0, -1])
def test_a_single_change_at_either_end(num_words: int, place: int) -> None:
    old = np.full(num_words, 0x3F80, dtype=np.uint16)
    new = old.copy()
    new[place] ^= 0x8000
    assert patched(encode_block(old, new, BF16_OCTAVE).data, old).tobytes() == new.tobytes()


def test_blocks_are_unchanged_sparse_or_dense() -> None:
    old = bf16_words(np.random.default_rng(0), 10_000, 0.05)
    few, many = old.copy(), old + np.uint16(1)
    few[::100] += 1
    assert encode_block(old, old, BF16_OCTAVE) == (bytes([UNCHANGED]), 0)
    assert encode_block(old, few, BF16_OCTAVE).data[0] == SPARSE
    assert encode_block(old, many, BF16_OCTAVE).data[0] == DENSE


def test_counting_gaps_by_magnitude_saves_where_small_values_change_more() -> None:
    rng = np.random.default_rng(0)
    old = bf16_words(rng, 1 << 17, 0.05)
    likely = np.minimum(0.5, 2.0 ** (0x3B - (old >> 7 & 0xFF).astype(float)) / 50)
    new = old + (rng.random(len(old)) < likely).astype(np.uint16)
    by_magnitude, alike = (len(encode_block(old, new, octave).data) for octave in (BF16_OCTAVE, 0))
    assert by_magnitude < 0.8 * alike


def test_a_sparse_block_by_hand() -> None:
    # Gap 2 then +1; 32 more and gap 1 then −2; gap 0 then a wide difference of +300.
    wide = zstandard.ZstdCompressor().compress(bytes([600 & 255, 600 >> 8]))
    block = sparse([2 << 3 | 0, SKIP, 1 << 3 | 3, WIDE], wide=wide)
    assert np.flatnonzero(patched(block, SOME) != SOME).tolist() == [2, 36, 37]
    assert patched(block, SOME)[[2, 36, 37]].tolist() == [3, 34, 337]


def test_low_bits_come_lowest_first() -> None:
    # Gaps 0b1011 and 0b0110, of which two bits each are symbols'.
    block = sparse([0b10 << 3, 0b01 << 3], bytes([0b10_11]), shift=2)
    assert np.flatnonzero(patched(block, SOME) != SOME).tolist() == [0b1011, 0b1011 + 1 + 0b0110]


@pytest.mark.parametrize("way", ["plain", "compiled"])
@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (b"", "kind None"),
        (bytes([7]), "kind 7"),
        (bytes([UNCHANGED, 0]), "with 1 bytes"),
        (bytes([SPARSE]), "1 bytes wanted"),
        (bytes([SPARSE, 0]), "0 classes"),
        (bytes([SPARSE, 9]), "9 classes"),
        (bytes([SPARSE, 3, 5, 0, 5, 0]), "thresholds"),
        (bytes([SPARSE, 1, 25, 1]), "shifts up to 25"),
        (bytes([SPARSE, 1, 0]) + number(201), "201 symbols"),
        (bytes([SPARSE, 1, 0]) + b"\xff" * 9, "more than eight bytes"),
        (sparse([0])[:-1], "bytes wanted"),
        (sparse([0] * 101), "101 changes"),
        (sparse([31 << 3] * 4), "outside"),
        (sparse([SKIP | 31 << 3, 0]), "outside"),
        (sparse([0, SKIP]), "skip|outside"),
        (sparse([WIDE]), "can't be read"),
        (sparse([0], wide=b"\0"), "frame"),
        (sparse([0], b"\0"), "low bits"),
        (sparse([0], b"\0", shift=9), "low bits"),
        (sparse([0] * 50, bytes(50), shift=8), "400 low bits"),
        (bytes([DENSE]) + b"\0" * 20, "frame"),
        (bytes([DENSE]) + zstandard.ZstdCompressor().compress(bytes(199)), "200 bytes"),
        (bytes([DENSE]) + zstandard.ZstdCompressor().compress(bytes(200)) + b"\0", "frame"),
    ],
)
def test_bytes_that_make_no_sense_are_refused(
    block: bytes, fault: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernels.VARIABLE, way)
    with pytest.raises(MalformedFile, match=fault):
        decode_block(block, SOME)


def test_a_frame_that_would_unfold_to_gigabytes_takes_none() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 26))
    with pytest.raises(MalformedFile, match="isn't of 200 bytes"):
        decode_block(bytes([DENSE]) + bomb, SOME)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    with pytest.raises(MalformedFile, match="isn't of 200 bytes"):
        decode_block(bytes([DENSE]) + unsized, SOME)
