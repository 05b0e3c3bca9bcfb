"""Parquet files that are wrong in their structure: metadata, page headers and page bodies changed one by one.

In: an honest file and `Choices`. Out: a file whose lengths, offsets and checksums fit each other again wherever a
change didn't aim at them, so that it gets past the door and deep into a reader.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pyarrow as pa

from tests.fuzz.target import Choices
from tests.fuzz.thrift_tree import (
    BINARY,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Node,
    binary,
    decode,
    encode,
    integer,
    struct,
    structs,
)

MAGIC = b"PAR1"
ROW_GROUPS, COLUMNS, COLUMN_META, NUM_ROWS = 4, 1, 3, 3
NUM_VALUES, UNCOMPRESSED, COMPRESSED, DATA_OFFSET = 5, 6, 7, 9
CODECS = ("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    8,
    15,
    16,
    31,
    127,
    255,
    2**15,
    2**20,
    2**31 - 1,
    -(2**31),
    2**32,
    2**62,
    -(2**63),
    2**63 - 1,
)


@dataclass
class Page:
    """A data page: its header's tree, and its body as it lies in the file."""

    header: Node
    body: bytes


@dataclass
class ParquetFile:
    """A file taken apart: the footer's tree, and the pages of each column chunk in file order."""

    footer: Node
    chunks: list[list[Page]] = field(default_factory=list)

    @classmethod
    def of(cls, data: bytes) -> ParquetFile:
        footer, _ = decode(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
        file = cls(footer)
        for meta in file.column_metas():
            position = meta.find(DATA_OFFSET).value
            end = position + meta.find(COMPRESSED).value
            pages = []
            while position < end:
                header, start = decode(data, position)
                position = start + header.find(3).value
                pages.append(Page(header, data[start:position]))
            file.chunks.append(pages)
        return file

    def column_metas(self) -> list[Node]:
        return [c.find(COLUMN_META) for g in self.footer.find(ROW_GROUPS).children for c in g.find(COLUMNS).children]

    def assemble(self, *, mend: bool) -> bytes:
        """The file's bytes; `mend` puts the offsets and sizes of chunks right."""
        body = bytearray(MAGIC)
        places = []
        for pages in self.chunks:
            start = len(body)
            for page in pages:
                body += encode(page.header) + page.body
            places.append((start, len(body) - start))
        if mend:
            for meta, (start, size) in zip(self.metas_or_none(), places, strict=False):
                _set(meta, DATA_OFFSET, start)
                _set(meta, COMPRESSED, size)
        footer = encode(self.footer)
        return bytes(body) + footer + len(footer).to_bytes(4, "little") + MAGIC

    def metas_or_none(self) -> list[Node]:
        try:
            return self.column_metas()
        except (StopIteration, IndexError):
            return []


def mutated_parquet(data: bytes, choices: Choices) -> bytes:
    """One to four changes of the file's structure."""
    file = ParquetFile.of(data)
    for _ in range(1 + choices.below(4)):
        choices.pick(_CHANGES)(file, choices)
    return file.assemble(mend=choices.below(4) != 0)


def _set(node: Node, number: int, value: int) -> None:
    for child in node.children:
        if child.number == number:
            child.value = value


def _change_tree(root: Node, choices: Choices) -> None:
    """Change one node of a tree."""
    nodes = list(root.walk())
    node = nodes[choices.below(len(nodes))]
    action = choices.below(8)
    if node.kind in (I16, I32, I64) and action < 5:
        node.value = choices.pick(NUMBERS) if choices.flag() else (node.value or 0) + choices.byte() - 128
    elif node.kind == BINARY and action < 5:
        node.value = choices.bytes(40)
    elif action == 5:
        node.kind = choices.pick((I32, I64, BINARY, LIST, STRUCT, DOUBLE, 1, 11))
    elif node.children:
        _change_children(node, choices)


def _change_children(node: Node, choices: Choices) -> None:
    place, action = choices.below(len(node.children)), choices.below(6)
    child = node.children[place]
    if action == 0:
        del node.children[place]
    elif action == 1:
        node.children[place:place] = [copy.deepcopy(child) for _ in range(1 + choices.below(3))]
    elif action == 2:
        node.children.reverse()
    elif action == 3:
        child.number = choices.below(40)
    elif action == 4 and node.kind == LIST:
        node.value = choices.pick(NUMBERS) % 2**40
    else:
        other = choices.below(len(node.children))
        node.children[place], node.children[other] = node.children[other], node.children[place]


def _change_footer(file: ParquetFile, choices: Choices) -> None:
    _change_tree(file.footer, choices)


def _page_of(file: ParquetFile, choices: Choices) -> Page:
    return choices.pick(choices.pick([pages for pages in file.chunks if pages] or [[Page(Node(STRUCT), b"")]]))


def _change_page_header(file: ParquetFile, choices: Choices) -> None:
    _change_tree(_page_of(file, choices).header, choices)


def _change_page_number(file: ParquetFile, choices: Choices) -> None:
    """Sizes, the number of values, encodings: what a reader allocates by."""
    header = _page_of(file, choices).header
    try:
        node = header.find(*choices.pick(((1,), (2,), (3,), (5, 1), (5, 2), (5, 3), (5, 4))))
    except (StopIteration, IndexError):
        return
    node.value = choices.pick(NUMBERS)


def _change_body(file: ParquetFile, choices: Choices) -> None:
    """The page's content, unpacked, changed and packed again."""
    page = _page_of(file, choices)
    try:
        size = max(0, min(page.header.find(2).value or 0, 1 << 20))
        content = bytearray(pa.decompress(page.body, size, codec="zstd", asbytes=True))
    except (StopIteration, IndexError, TypeError, pa.ArrowException, OSError, ValueError):
        content = bytearray(page.body)
    for _ in range(1 + choices.below(4)):
        place = choices.below(max(1, min(len(content), 64 if choices.flag() else len(content))))
        content[place : place + choices.below(3)] = choices.bytes(5)
    _put_body(page, bytes(content), choices.pick(("zstd", "zstd", "zstd", "snappy")))


def _put_body(page: Page, content: bytes, codec: str) -> None:
    page.body = pa.compress(content, codec=codec, asbytes=True)
    _set(page.header, 2, len(content))
    _set(page.header, 3, len(page.body))


def _bomb(file: ParquetFile, choices: Choices) -> None:
    """A page that unfolds to a mebibyte, with a count of values to match, or not."""
    page = _page_of(file, choices)
    _put_body(page, bytes([choices.byte()]) * (1 << 20), "zstd")
    if page.header.children and choices.flag():
        for child in page.header.children:
            if child.number == 5:
                _set(child, 1, choices.pick(NUMBERS))


def _change_codec(file: ParquetFile, choices: Choices) -> None:
    for meta in file.metas_or_none():
        _set(meta, 4, choices.below(len(CODECS)))


def _repeat_page(file: ParquetFile, choices: Choices) -> None:
    pages = choices.pick(file.chunks)
    pages.extend(copy.deepcopy(pages[:1]) * (1 + choices.below(40)))


def _move_page(file: ParquetFile, choices: Choices) -> None:
    source, target = choices.pick(file.chunks), choices.pick(file.chunks)
    if source:
        target.insert(choices.below(len(target) + 1), copy.deepcopy(choices.pick(source)))


def _repeat_row_group(file: ParquetFile, choices: Choices) -> None:
    """The same rows in many groups."""
    try:
        groups = file.footer.find(ROW_GROUPS)
        copies = 1 + choices.below(3)
        num_chunks = len(groups.children[0].find(COLUMNS).children)
    except (StopIteration, IndexError):
        return
    groups.children.extend(copy.deepcopy(groups.children[:1]) * copies)
    file.chunks.extend(copy.deepcopy(file.chunks[:num_chunks]) * copies)
    _set(file.footer, NUM_ROWS, choices.pick((1, 2, 4, 8, 16, 17, 2**31)))


def _claim_rows(file: ParquetFile, choices: Choices) -> None:
    rows = choices.pick(NUMBERS)
    _set(file.footer, NUM_ROWS, rows if choices.flag() else 1)
    try:
        _set(choices.pick(file.footer.find(ROW_GROUPS).children), 3, rows)
    except (StopIteration, IndexError):
        return


def _claim_values(file: ParquetFile, choices: Choices) -> None:
    metas = file.metas_or_none()
    if metas:
        _set(
            choices.pick(metas),
            choices.pick((NUM_VALUES, UNCOMPRESSED, COMPRESSED, DATA_OFFSET)),
            choices.pick(NUMBERS),
        )


def _nest_schema(file: ParquetFile, choices: Choices) -> None:
    """Groups within groups, below the root or instead of a column."""
    depth = choices.pick((1, 3, 60, 200))
    group = struct(0, integer(3, choices.below(3)), binary(4, b"g"), integer(5, 1))
    try:
        elements = file.footer.find(2).children
    except (StopIteration, IndexError):
        return
    place = choices.below(len(elements) + 1)
    elements[place:place] = [copy.deepcopy(group) for _ in range(depth)]


def _add_statistics(file: ParquetFile, choices: Choices) -> None:
    """Statistics, dictionary and index offsets, key-value pairs, which ours never have."""
    extra = choices.pick(
        (
            struct(12, binary(1, choices.bytes(9)), binary(2, choices.bytes(9)), integer(3, choices.byte(), I64)),
            integer(10, choices.pick(NUMBERS), I64),
            integer(11, choices.pick(NUMBERS), I64),
            structs(8, struct(0, binary(1, b"proofpool"), binary(2, b"{}"))),
            structs(13, struct(0, integer(1, 0), integer(2, 0), integer(3, choices.pick(NUMBERS)))),
            integer(14, choices.pick(NUMBERS), I64),
        )
    )
    for meta in file.metas_or_none()[: 1 + choices.below(10)]:
        meta.children = sorted([*meta.children, extra], key=lambda child: child.number)


_CHANGES = (
    *(_change_footer, _change_page_header, _change_page_number, _change_body, _change_body, _bomb, _change_codec),
    *(_repeat_page, _move_page, _repeat_row_group, _claim_rows, _claim_values, _nest_schema, _add_statistics),
)
