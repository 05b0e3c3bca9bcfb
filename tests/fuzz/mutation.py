"""Changes to an input: of its bytes, or of the JSON document that it holds.

In: bytes, other inputs to cross them with, and a random generator. Out: other bytes. Nothing here knows a format
but JSON; formats with lengths in them have targets that build them (`parquet_mutation.py`).
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

INTERESTING = (0, 1, -1, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53)
TOKENS = (
    b"\0" * 8,
    b"\xff" * 8,
    b"PAR1",
    b"[" * 40,
    b'{"":' * 40,
    b"NaN",
    b"1e999",
    b"9" * 60,
    b"0x",
    b"\\ud800",
    b"-0",
)
MANY_PLACES = 100
"""Documents with more values in them aren't made many times as long: three changes would make gigabytes of one."""
VALUES: tuple[Any, ...] = (
    *(None, True, "", "0x", "\u0000", "é" * 9, [], {}, [[]], 0.5, -0.0, 1e-300, 1e300),
    *(float("nan"), float("inf"), 2**53, 2**64, 2**256, -(2**63), "9" * 60, "0x" + "00" * 32, "0x" + "FF" * 20),
)


def mutate(data: bytes, others: Sequence[bytes], rng: random.Random, *, is_json: bool, max_bytes: int) -> bytes:
    """The input with one to eight changes."""
    if is_json and rng.random() < 0.7 and (changed := mutate_json(data, rng)) is not None:
        return changed[:max_bytes]
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        rng.choice(_ACTIONS)(result, others, rng)
    return bytes(result[:max_bytes])


def mutate_json(data: bytes, rng: random.Random) -> bytes | None:
    """The document with one to three of its values replaced, dropped, repeated or moved; None where it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for _ in range(rng.choice((1, 1, 2, 3))):
        document = _changed(document, rng)
    return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _changed(document: Any, rng: random.Random) -> Any:
    places = list(_places(document))
    if not places:
        return _any_value(rng)
    holder, key = rng.choice(places)
    action = rng.random()
    if action < 0.5:
        holder[key] = _other_value(holder[key], rng)
    elif action < 0.6:
        del holder[key]
    elif action < 0.75:
        holder[key] = copy.deepcopy(rng.choice(places)[0]) if len(places) < 100 * MANY_PLACES else None
    elif isinstance(holder, list):
        holder[key:key] = [holder[key]] * (rng.choice((1, 2, 70)) if len(places) < MANY_PLACES else 1)
    else:
        holder[rng.choice(("x", "", "schema_version", key + "_"))] = holder[key]
    return document


def _other_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, str) and value and rng.random() < 0.5:
        place = rng.randrange(len(value))
        return value[:place] + rng.choice(("", "0", "f", "F", " ", "\n", "\ud800", value)) + value[place + 1 :]
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice(INTERESTING)
    return _any_value(rng)


def _any_value(rng: random.Random) -> Any:
    """A copy: a document that holds a list of the table itself would have it changed for all that come after."""
    return copy.deepcopy(rng.choice(VALUES))


def _places(document: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of every value inside."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        keys = (
            list(holder) if isinstance(holder, dict) else list(range(len(holder))) if isinstance(holder, list) else []
        )
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys]
    return found


def _place(data: bytearray, rng: random.Random) -> int:
    """Anywhere, the ends more often: formats keep their metadata there."""
    size = max(1, len(data))
    return rng.choice((rng.randrange(size), rng.randrange(min(64, size)), size - 1 - rng.randrange(min(600, size))))


def _set_byte(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    place = _place(data, rng)
    data[place : place + 1] = bytes([rng.randrange(256)])


def _flip_bit(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    place = _place(data, rng)
    if place < len(data):
        data[place] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    place = _place(data, rng)
    del data[place : place + rng.choice((1, 2, 4, 32, len(data)))]


def _insert(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    place = _place(data, rng)
    data[place:place] = rng.choice((rng.randbytes(rng.randrange(1, 9)), rng.choice(TOKENS)))


def _number(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    place, size = _place(data, rng), rng.choice((1, 2, 4, 8))
    value = rng.choice(INTERESTING) % 256**size
    data[place : place + size] = value.to_bytes(size, rng.choice(("little", "big")))


def _repeat(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    place, size = _place(data, rng), rng.randrange(1, 65)
    data[place:place] = data[place : place + size] * rng.choice((1, 2, 40))


def _cross(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    other = rng.choice(others) if others else b""
    start, place = rng.randrange(len(other) + 1), _place(data, rng)
    piece = other[start : start + rng.choice((8, 64, len(other)))]
    data[place : place + rng.choice((0, len(piece)))] = piece


_ACTIONS: tuple[Callable[[bytearray, Sequence[bytes], random.Random], None], ...] = (
    *(_set_byte, _flip_bit, _cut, _insert, _number, _repeat, _cross),
)
