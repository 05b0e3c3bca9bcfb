"""Patches: what turns one policy version's safetensors file into a later one's, a hundredth of its size, to the bit.

    base file + new file ──diff──▶ patch file          the origin, beside a version's shards
    base file + patches  ──apply_patches──▶ new file   a client that has an earlier version
    live tensors + patch ──decode──▶ changes ──write──▶ live tensors
    base file + patches ──decode_chain──▶ changes      an engine writes them wherever its weights lie, without reloading

A patch is a header, the layout of the new file, and a block for each 4 MiB of it. Blocks are made and used one at a
time, so memory doesn't grow with the model. A tensor that the base hasn't in this dtype and shape is carried whole. The
header names the BLAKE3 of both files; what is applied is checked against the new one before it is put in its place.
A patch may come from anybody: whatever it claims is checked before memory is taken for it. Format: docs/protocol.md.
Source of the idea: PULSE, arXiv:2602.03839 (an RL step leaves about 99 % of bf16 weights as they are).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from protocol.canonical import hex0x
from protocol.errors import MalformedFile, VerificationFailed
from protocol.files import atomic_file
from protocol.shardcast.patch_blocks import decode_block, encode_block
from protocol.shardcast.patch_coding import Changes, Words
from protocol.shardcast.patch_file import BLOCK_BYTES, READ_BYTES, PatchHeader, PatchReader, PatchWriter, read_header
from protocol.shardcast.patch_layout import Layout, Span, layout_of
from protocol.shardcast.patch_words import FileTensors, LiveTensors, WordSource, flat_words
from protocol.wire import ZERO_HASH

MARGIN_BYTES = 64 << 20
"""A result may be twice as large as its base and this much more, unless the caller allows more."""


@dataclass(frozen=True)
class PatchSummary:
    """What `diff` made: sizes in bytes, and how many of the words changed."""

    header: PatchHeader
    patch_bytes: int
    num_words: int
    num_changed: int


@dataclass(frozen=True, eq=False)
class TensorChanges:
    """`positions` int64 in the flat tensor, what lies there `before`, and the `values` that go there.

    Both as unsigned words of the tensor's size; `dtype` is safetensors' name for what they are.
    """

    name: str
    dtype: str
    positions: npt.NDArray[np.int64]
    before: Words
    values: Words


# --- making -----------------------------------------------------------------------------------------------------------


def diff(
    base: Path,
    new: Path,
    patch: Path,
    *,
    base_version: int,
    policy_version: int,
    base_hash: str | None = None,
    result_hash: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> PatchSummary:
    """Write the patch that makes `new` of `base`, both safetensors files; it is there whole or not at all.

    Hashes that the caller knows aren't taken again. Raises MalformedFile where a file is none of safetensors, OSError.
    """
    layout = layout_of(new)
    with FileTensors.open(base) as old_tensors, FileTensors.open(new) as new_tensors, atomic_file(patch) as file:
        if base_hash is None and old_tensors.layout.tensors != layout.tensors:
            base_hash = file_hash(base)  # elsewhere blocks come in the file's order, and are hashed as they come
        header = PatchHeader(
            base_version=base_version,
            policy_version=policy_version,
            base_hash=base_hash or ZERO_HASH,
            result_hash=result_hash or ZERO_HASH,
            result_bytes=layout.file_bytes,
            block_bytes=block_bytes,
            whole=_whole(layout, old_tensors.layout),
        )
        old, new_words = WordSource(layout, old_tensors, header.whole), WordSource(layout, new_tensors)
        hashers = [_Hash(base_hash, old_tensors.layout), _Hash(result_hash, layout)]
        out, num_words, num_changed = PatchWriter(file, header, layout), 0, 0
        for span in layout.spans(block_bytes):
            words = old.words(span), new_words.words(span)
            for hasher, part in zip(hashers, words, strict=True):
                hasher.update(part)
            block = encode_block(*words, span.octave)
            out.add(block.data)
            num_words += len(words[0])
            num_changed += block.num_changed
        found = {"base_hash": hashers[0].known, "result_hash": hashers[1].known}
        header = header.model_copy(update=found)
        return PatchSummary(header, out.finish(header), num_words, num_changed)


class _Hash:
    """A safetensors file's hash: one that is known, or taken while its words go by in the file's order."""

    def __init__(self, known: str | None, layout: Layout) -> None:
        self._known = known
        self._hasher = blake3(layout.prefix)

    def update(self, words: Words) -> None:
        if self._known is None:
            self._hasher.update(words.view(np.uint8).data)

    @property
    def known(self) -> str:
        return self._known or hex0x(self._hasher.digest())


def _whole(layout: Layout, base: Layout) -> tuple[str, ...]:
    """Tensors that the base hasn't in their dtype and shape."""
    return tuple(sorted(t.name for t in layout.tensors if not t.is_like(base.by_name.get(t.name))))


def file_hash(path: Path) -> str:
    """BLAKE3 of a file, by one thread, in constant memory."""
    hasher = blake3()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(READ_BYTES)
        while count := file.readinto(buffer):
            hasher.update(memoryview(buffer)[:count])
    return hex0x(hasher.digest())


# --- applying to files ------------------------------------------------------------------------------------------------


def apply_patches(
    base: Path, patches: Sequence[Path], result: Path, *, check: bool = True, max_bytes: int | None = None
) -> PatchHeader:
    """Write the file that one patch, or a chain of them in order, makes of `base`; the last one's header.

    It is there whole or not at all, and where `check` is set only if its hash is the promised one. No step writes more
    than `max_bytes`, by default a little over twice the base. Raises MalformedFile where a patch makes no sense,
    VerificationFailed where patches don't follow one another or the result isn't the promised one, OSError.
    """
    limit = 2 * base.stat().st_size + MARGIN_BYTES if max_bytes is None else max_bytes
    headers = [read_header(path) for path in patches]
    _check_chain(headers)
    result.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{result.name}.", dir=result.parent) as scratch:
        parts = _passes(patches)
        for index, part in enumerate(parts):
            is_last = index == len(parts) - 1
            step = result if is_last else Path(scratch) / str(index)
            _apply_together(base, part, step, check=check and is_last, max_bytes=limit)
            base = step
    return headers[-1]


def _check_chain(headers: Sequence[PatchHeader]) -> None:
    if not headers:
        raise VerificationFailed("there is no patch to apply", "", "name at least one")
    for before, after in zip(headers, headers[1:], strict=False):
        if before.result_hash != after.base_hash:
            why = f"version {before.policy_version} isn't what version {after.policy_version}'s patch builds on"
            raise VerificationFailed("the patches are no chain", why, "give them in order, without a gap")


def _passes(patches: Sequence[Path]) -> list[list[Path]]:
    """The chain cut where a patch has other blocks than the one before, or whole tensors: a pass over the file each."""
    parts: list[list[Path]] = []
    before: tuple[bytes, int] | None = None
    for path in patches:
        with PatchReader.open(path) as patch:
            shape = (patch.layout.text, patch.header.block_bytes)
            if shape == before and not patch.header.whole:
                parts[-1].append(path)
            else:
                parts.append([path])
            before = shape
    return parts


def _apply_together(base: Path, patches: Sequence[Path], result: Path, *, check: bool, max_bytes: int) -> None:
    """Patches of the same blocks in one pass: each block goes through all of them before it is written."""
    with ExitStack() as stack:
        readers = [stack.enter_context(PatchReader.open(path)) for path in patches]
        layout, last = readers[0].layout, readers[-1].header
        if layout.file_bytes > max_bytes:
            raise VerificationFailed("a patch makes too large a file", f"{layout.file_bytes} bytes of {max_bytes}")
        tensors = stack.enter_context(FileTensors.open(base))
        if missing := set(_whole(layout, tensors.layout)) - set(readers[0].header.whole):
            raise _for_another(readers[0].header, f"it hasn't {min(missing):.100} in that dtype and shape")
        file = stack.enter_context(atomic_file(result))
        hasher = blake3(layout.prefix)
        file.write(layout.prefix)
        for words in _patched(readers, WordSource(layout, tensors, readers[0].header.whole)):
            file.write(words.data)
            if check:
                hasher.update(words.view(np.uint8).data)
        if check and hex0x(hasher.digest()) != last.result_hash:
            raise _mismatch(last, file_hash(base) == readers[0].header.base_hash)


def _patched(readers: Sequence[PatchReader], data: WordSource) -> Iterator[Words]:
    """The result's words, span by span; each is overwritten by the next."""
    # Ends of all files are read too: that is where each says whether it is whole.
    blocks = zip(*(reader.blocks() for reader in readers), strict=True)
    for span, together in zip(readers[0].spans, blocks, strict=True):
        words = data.words(span)
        for block in together:
            decode_block(block, words).write(words)
        yield words


def _mismatch(header: PatchHeader, is_base_right: bool) -> VerificationFailed:
    if not is_base_right:
        return _for_another(header, "its hash isn't the one that the patch names")
    why = f"the result isn't {header.result_hash}"
    return VerificationFailed("a patch doesn't make what it promises", why, "fetch it again, or a snapshot")


def _for_another(header: PatchHeader, why: str) -> VerificationFailed:
    what = f"the base isn't version {header.base_version}'s file, or has changed"
    return VerificationFailed(what, why, "take the patch for what you have, or a snapshot")


# --- applying in place ------------------------------------------------------------------------------------------------


def decode(patch: Path, tensors: Mapping[str, npt.NDArray[Any]], *, check: bool = True) -> list[TensorChanges]:
    """What a patch changes in live tensors, C-contiguous arrays by name, of which nothing is written.

    With `check`, only what makes the promised file, to the bit, is given back. Tensors that share memory (tied ones)
    are no trouble: their changes are the same. Takes ten bytes a changed value. Raises MalformedFile where the patch
    makes no sense, VerificationFailed where the tensors aren't its base or the result isn't the promised one.
    """
    with PatchReader.open(patch) as reader:
        live = LiveTensors(tensors)
        data = WordSource(reader.layout, live, reader.header.whole)
        for tensor in reader.layout.tensors:
            live.check(tensor)
        hasher, found = blake3(reader.layout.prefix), list[TensorChanges]()
        for span, block in zip(reader.spans, reader.blocks(), strict=True):
            words = data.words(span)
            changes = decode_block(block, words)
            found += _by_tensor(data, span, changes, words[changes.positions])
            if check:
                changes.write(words)
                hasher.update(words.view(np.uint8).data)
        if check and hex0x(hasher.digest()) != reader.header.result_hash:
            why = f"they don't become {reader.header.result_hash}"
            raise VerificationFailed("the patch isn't for these tensors", why, "load the version whole")
        return found


def write_changes(changes: Sequence[TensorChanges], tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Make the changes that `decode` found, in the same tensors."""
    for change in changes:
        flat_words(tensors[change.name], change.values.itemsize)[change.positions] = change.values


def decode_chain(base: Path, patches: Sequence[Path]) -> list[TensorChanges]:
    """What a chain of patches changes in a safetensors file, once for each value, by tensor; nothing is written.

    `base` has its tensors as the result has them, in the same order. Only what makes the promised file, to the bit, is
    given back. Takes twelve bytes a changed bf16 value. Raises MalformedFile where a patch makes no
    sense, VerificationFailed where the chain isn't for this base or needs a load, OSError.
    """
    headers = [read_header(path) for path in patches]
    _check_chain(headers)
    if len(_passes(patches)) > 1:
        raise VerificationFailed("the patches don't go together", "tensors or blocks differ", "load the version whole")
    try:
        return _decode_together(base, patches)
    except MalformedFile as error:
        if file_hash(base) == headers[0].base_hash:
            raise
        raise _for_another(headers[0], str(error)) from error


def _decode_together(base: Path, patches: Sequence[Path]) -> list[TensorChanges]:
    with ExitStack() as stack:
        readers = [stack.enter_context(PatchReader.open(path)) for path in patches]
        first, layout, last = readers[0].header, readers[0].layout, readers[-1].header
        tensors = stack.enter_context(FileTensors.open(base))
        if first.whole or tensors.layout.tensors != layout.tensors:
            raise _for_another(first, "its tensors are others, or lie otherwise")
        data, hasher, found = WordSource(layout, tensors), blake3(layout.prefix), list[TensorChanges]()
        blocks = zip(*(reader.blocks() for reader in readers), strict=True)
        for span, together in zip(readers[0].spans, blocks, strict=True):
            words = data.words(span)
            found += _by_tensor(data, span, *_changed(together, words))
            hasher.update(words.view(np.uint8).data)
        if hex0x(hasher.digest()) != last.result_hash:
            raise _mismatch(last, file_hash(base) == first.base_hash)
        return found


def _changed(blocks: Sequence[bytes], words: Words) -> tuple[Changes, Words]:
    """What blocks change in words, which they do here, one after the other; and what was there before."""
    if len(blocks) == 1:
        changes = decode_block(blocks[0], words)
        before: Words = words[changes.positions]
        changes.write(words)
        return changes, before
    old = words.copy()
    for block in blocks:
        decode_block(block, words).write(words)
    positions = np.flatnonzero(old != words).astype(np.uint32)
    return Changes(positions, words[positions]), old[positions]


def _by_tensor(data: WordSource, span: Span, changes: Changes, before: Words) -> Iterator[TensorChanges]:
    """A block's changes, parted by the tensors that the block is about; `before` is what was in their places."""
    positions = changes.positions.astype(np.int64) + span.start // span.word_bytes
    for tensor, start, stop in data.pieces(span):
        first, last = start // span.word_bytes, stop // span.word_bytes
        inside = (positions >= first) & (positions < last)
        if np.any(inside):
            where = positions[inside] - tensor.start // span.word_bytes
            yield TensorChanges(tensor.name, tensor.dtype, where, before[inside], changes.values[inside])
