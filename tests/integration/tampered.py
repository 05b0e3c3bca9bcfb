"""One bit of a bundle turned round: every value of the document, by the path that leads to it.

In: a bundle as JSON and a path such as `verdicts.0.salt`. Out: the same bundle but for one bit of that value.
"""

from __future__ import annotations

import base64
import copy
import struct
from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
FILE = "file"


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Of every value that has a bit to flip; what is absent or empty has none."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from paths(item, f"{prefix}.{name}" if prefix else str(name))
    elif value not in (None, ""):
        yield prefix


def flipped(document: Document, path: str) -> Document:
    changed = copy.deepcopy(document)
    *outer, last = path.split(".")
    place: Any = changed
    for name in outer:
        place = place[int(name) if isinstance(place, list) else name]
    key = int(last) if isinstance(place, list) else last
    place[key] = flipped_file(place[key]) if path == FILE else _flipped_value(place[key])
    assert changed != document
    return changed


def flipped_file(text: str, bit: int | None = None) -> str:
    """Base64 of the same bytes but for one bit, in the middle unless said."""
    data = bytearray(base64.b64decode(text))
    bit = len(data) * 4 if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    return base64.b64encode(bytes(data)).decode()


def _flipped_value(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value ^ 1
    if isinstance(value, float):
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return struct.unpack("<d", struct.pack("<Q", bits ^ 1))[0]
    if value.startswith("0x"):
        return value[:-1] + f"{int(value[-1], 16) ^ 1:x}"
    return value[:-1] + chr(ord(value[-1]) ^ 1)
