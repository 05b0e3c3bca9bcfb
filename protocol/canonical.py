"""One byte string for one value: canonical JSON, and the hashes that are taken over it.

In: JSON-like values (dict, list, str, int, float, bool, None). Out: UTF-8 bytes in the sense of
RFC 8785 (sorted keys, no white space, shortest round-trip numbers). Everything that is hashed or
logged goes through `canonical_json`, so two parties can't disagree on bytes.
"""

from __future__ import annotations

import hashlib
import math
import re
from decimal import Decimal
from json.encoder import encode_basestring

import sha3

from protocol.errors import NotCanonical

JsonValue = dict[str, "JsonValue"] | list["JsonValue"] | str | int | float | bool | None

MAX_SAFE_INTEGER = 2**53 - 1
MIN_NUMBER = 1e-4
MAX_NESTING = 200
"""As deep as the parser of incoming messages goes."""
_WORDS = {None: "null", True: "true", False: "false"}
_HASH32 = re.compile("0x[0-9a-f]{64}")


def keccak256(data: bytes) -> bytes:
    """Ethereum's Keccak-256: 32 bytes."""
    digest: bytes = sha3.keccak_256(data).digest()
    return digest


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def hex0x(data: bytes) -> str:
    """Lower-case hexadecimal with a 0x in front: how every digest and address is written."""
    return "0x" + data.hex()


def from_hex0x(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def is_hash32(text: str) -> bool:
    """Whether this is 32 bytes as `hex0x` writes them."""
    return _HASH32.fullmatch(text) is not None


def canonical_json(value: JsonValue) -> bytes:
    """RFC 8785 bytes of a JSON value.

    Raises NotCanonical for NaN, infinities, integers past 2^53 - 1 (write those as strings), halves of surrogate
    pairs, and what nests deeper than `MAX_NESTING`.

    >>> canonical_json({"b": 1.0, "a": [True, None, "é"]})
    b'{"a":[true,null,"\\xc3\\xa9"],"b":1}'
    """
    try:
        return _text(value, 0).encode()
    except UnicodeEncodeError as error:
        raise NotCanonical("a text has half a surrogate pair", f"at {error.start}", "send valid Unicode") from error


def canonical_hash(value: JsonValue) -> str:
    """Keccak-256 of the canonical JSON, as 0x-hex."""
    return hex0x(keccak256(canonical_json(value)))


def json_number(value: float) -> float | str:
    """A number in the form in which canonical documents hold it: a decimal string where JSON's numbers don't reach.

    >>> json_number(0.25), json_number(1e-9)
    (0.25, '0.000000001')
    """
    return value if value == 0 or abs(value) >= MIN_NUMBER else format(Decimal(repr(value)), "f")


def _text(value: JsonValue, depth: int) -> str:
    """`depth`: how many containers it is in."""
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if not isinstance(value, dict | list | tuple):
        return _number_text(value)
    if value and depth >= MAX_NESTING:
        raise NotCanonical("a value nests too deeply", f"past {MAX_NESTING} levels", "send flat documents")
    # Texts are most of what there is: no further call is spent on them.
    below = depth + 1
    if not isinstance(value, dict):
        items = [encode_basestring(item) if type(item) is str else _text(item, below) for item in value]
        return "[" + ",".join(items) + "]"
    members = []
    for key in _in_order(value):
        item = value[key]
        text = encode_basestring(item) if type(item) is str else _text(item, below)
        members.append(f"{encode_basestring(key)}:{text}")
    return "{" + ",".join(members) + "}"


def _in_order(value: dict[str, JsonValue]) -> list[str]:
    """RFC 8785 sorts by UTF-16 code units, which for ASCII is as Python sorts; others it sorts by code points."""
    keys = sorted(value)
    return keys if "".join(keys).isascii() else sorted(keys, key=lambda key: key.encode("utf-16-be"))


def _number_text(value: int | float) -> str:
    if isinstance(value, int):
        if abs(value) > MAX_SAFE_INTEGER:
            raise NotCanonical(
                "an integer is too large for JSON", f"{value.bit_length()} bits", "write it as a decimal string"
            )
        return int.__repr__(value)
    if not math.isfinite(value):
        raise NotCanonical("a number has no JSON form", f"{value}", "send finite numbers")
    if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER:
        return int.__repr__(int(value))
    if not MIN_NUMBER <= abs(value) < 1e16:
        # Python and RFC 8785 write exponents differently out here, and no rule of ours needs such numbers.
        raise NotCanonical("a number is outside the canonical range", f"{value}", "use a value within 1e-4 to 1e16")
    return float.__repr__(value)
