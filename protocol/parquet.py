"""What a parquet file would unfold to, found out before anything of it is decoded.

In: a file from anybody, and how many values and bytes it may hold. Out: nothing, or MalformedFile. A file of a
few kilobytes can otherwise ask for gigabytes: compression, dictionaries and run lengths all repeat. Only what
`protocol/rollouts.py` writes is let through: plain data pages, one after the other from byte 4 to the footer, no
dictionary, no encryption, no other file, no metadata but our own key.
Source: the Apache Parquet format, parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.errors import MalformedFile
from protocol.thrift import BINARY, I32, I64, STRUCT, Struct, read_struct

MAGIC = b"PAR1"
TRAILER_BYTES = 8
MAX_FOOTER_BYTES = 1 << 17
MAX_PAGES = 4096
MAX_PAGE_HEADER_BYTES = 1 << 10
"""Without statistics, ours take 30."""
MAX_SCHEMA_ELEMENTS = 64
"""Columns and the groups around them: readers walk down nested ones on their stack, and overflow it."""
DATA_PAGE, PLAIN, RLE = 0, 0, 3
MAX_PAGE_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Page:
    """A data page as its header describes it."""

    num_values: int
    num_bytes: int
    """Uncompressed."""
    end: int


def check_pages(data: bytes, *, metadata_key: bytes, max_values: int, max_bytes: int) -> None:
    """Raises MalformedFile unless all pages are plain and hold at most so many values and bytes together."""
    footer, footer_start = _footer(data)
    _check_metadata([pair.take(1, BINARY) for pair in footer.structs(5)], metadata_key)
    if len(footer.structs(2)) > MAX_SCHEMA_ELEMENTS:
        raise MalformedFile("a parquet file's schema is too large", f"{len(footer.structs(2))} elements")
    num_pages = num_values = num_bytes = 0
    for page in _pages(data, footer, footer_start):
        num_pages, num_values, num_bytes = num_pages + 1, num_values + page.num_values, num_bytes + page.num_bytes
        if num_pages > MAX_PAGES or num_values > max_values or num_bytes > max_bytes:
            raise MalformedFile(
                "a parquet file unfolds into too much",
                f"over {max_values} values, {max_bytes} bytes or {MAX_PAGES} pages",
            )


def read_metadata(data: bytes, key: bytes) -> bytes:
    """What the file's metadata has under its only key. Raises MalformedFile; nothing else of the file is looked at."""
    footer, _ = _footer(data)
    pairs = footer.structs(5)
    _check_metadata([pair.take(1, BINARY) for pair in pairs], key)
    return bytes(pairs[0].take(2, BINARY))


def _check_metadata(keys: Sequence[bytes], wanted: bytes) -> None:
    """Our own key, once, and no other: what an editor adds to a file, or leaves out, is named."""
    if list(keys) == [wanted]:
        return
    extra = [key for position, key in enumerate(keys) if key != wanted or wanted in keys[:position]]
    faults = [f"{_text(wanted)} is missing"] if wanted not in keys else []
    faults += [f"{', '.join(map(_text, extra))} is extra"] if extra else []
    raise MalformedFile(
        "a parquet file has other metadata than ours",
        "; ".join(faults)[:200],
        "an editor has rewritten it? hand in what write_rollouts wrote",
    )


def _text(key: bytes) -> str:
    return repr(key.decode(errors="replace")[:40])


def _footer(data: bytes) -> tuple[Struct, int]:
    """The file's metadata, and where they start."""
    if len(data) < len(MAGIC) + TRAILER_BYTES or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise MalformedFile("this is no parquet file", f"{len(data)} bytes")
    start = len(data) - TRAILER_BYTES - int.from_bytes(data[-8:-4], "little")
    if not len(MAGIC) <= start or len(data) - start > MAX_FOOTER_BYTES:
        raise MalformedFile("a parquet file's footer is too long", f"{len(data) - start} bytes of {len(data)}")
    footer, end = read_struct(data, start, MAX_FOOTER_BYTES)
    if end > len(data) - TRAILER_BYTES:
        raise MalformedFile("a parquet file's footer is longer than it says", f"to {end}")
    return footer, start


def _pages(data: bytes, footer: Struct, footer_start: int) -> Iterator[Page]:
    """All pages, in file order, without a gap between them."""
    position = len(MAGIC)
    for chunk in _chunks(footer):
        end = position + chunk.take(7, I64)
        if chunk.take(9, I64) != position or not position < end <= footer_start or set(chunk) & {10, 11}:
            raise MalformedFile("a parquet file's columns aren't one after the other", f"one from {position} to {end}")
        while position < end:
            page = _page(data, position)
            if page.end > end:
                raise MalformedFile("a parquet page is longer than its column", f"to {page.end}, past {end}")
            yield page
            position = page.end
    if position != footer_start:
        raise MalformedFile("a parquet file has something between its columns and its footer", f"from {position}")


def _chunks(footer: Struct) -> Iterator[Struct]:
    """Column chunks in file order: their metadata."""
    for group in footer.structs(4):
        for chunk in group.structs(1):
            if set(chunk) & {1, 8, 9}:  # file_path, crypto_metadata, encrypted_column_metadata
                raise MalformedFile("a parquet file keeps a column elsewhere, or encrypted", str(sorted(chunk)))
            yield chunk.take(3, STRUCT)


def _page(data: bytes, position: int) -> Page:
    header, body = read_struct(data, position, MAX_PAGE_HEADER_BYTES)
    num_bytes, compressed = header.take(2, I32), header.take(3, I32)
    details = header.take(5, STRUCT)
    encodings = tuple(details.take(number, I32) for number in (2, 3, 4))
    num_values = details.take(1, I32)
    if header.take(1, I32) != DATA_PAGE or set(header) & {6, 7, 8} or encodings != (PLAIN, RLE, RLE):
        raise MalformedFile("a parquet file has a page that isn't plain", f"fields {sorted(header)}, {encodings}")
    if min(num_values, num_bytes, compressed) < 0:
        raise MalformedFile("a parquet page has a negative size", f"{num_values}, {num_bytes}, {compressed}")
    return Page(num_values, num_bytes, body + compressed)
