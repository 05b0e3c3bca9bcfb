"""Signed notes: a text with signatures under it, as transparency logs and their witnesses exchange them.

In: a text, and keys with names. Out: the note's text with a line for each signature; or, of a note, the text once a key
that is known has signed it. Whoever doesn't know a key passes over its line, so that witnesses may add theirs.
Source: C2SP signed-note; its Ed25519 type (0x01) and the timestamped cosignature of C2SP tlog-cosignature (0x04).
Vectors: tests/unit/protocol/merkle/test_note.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from protocol.errors import VerificationFailed

MAX_NOTE_BYTES = 64 << 10
MAX_SIGNATURES = 100
KEY_ID_BYTES, SIGNATURE_BYTES, TIME_BYTES = 4, 64, 8
_MARK = "\u2014 "


class KeyType(IntEnum):
    """The algorithm byte of a key: a log's own signature, or a witness's with the time of signing."""

    ED25519 = 0x01
    COSIGNATURE = 0x04


@dataclass(frozen=True)
class NoteKey:
    """A public key under its name. `public_key`: 32 bytes of Ed25519.

    Raises VerificationFailed where the name couldn't stand in a note.
    """

    name: str
    public_key: bytes
    type: KeyType = KeyType.ED25519

    def __post_init__(self) -> None:
        if not self.name or "+" in self.name or any(letter.isspace() for letter in self.name):
            raise VerificationFailed("that is no name for a key", f"{self.name!r} is empty, or has spaces or a plus")
        if len(self.public_key) != 32:
            raise VerificationFailed("that is no Ed25519 key", f"{len(self.public_key)} bytes, not 32")

    @property
    def key_id(self) -> bytes:
        """Four bytes that say which key a line may be of."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.type]) + self.public_key).digest()[:KEY_ID_BYTES]

    @classmethod
    def parse(cls, text: str) -> NoteKey:
        """A verifier key as others write it: `NAME+ID+KEY`. Raises VerificationFailed."""
        name, _, rest = text.strip().partition("+")
        key_id, _, encoded = rest.partition("+")
        data = _decoded(encoded)
        if data is None or len(data) != 33 or data[0] not in list(KeyType):
            raise VerificationFailed("that is no verifier key", text[:200], "write NAME+ID+KEY, as a log gives it")
        key = cls(name, data[1:], KeyType(data[0]))
        if key.key_id.hex() != key_id.lower():
            raise VerificationFailed("a verifier key's id isn't that of its key", f"{key_id}, not {key.key_id.hex()}")
        return key

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_encoded(bytes([self.type]) + self.public_key)}"


@dataclass(frozen=True)
class NoteSignature:
    """A key's word on a note. `time`: Unix seconds at which a witness signed; None for a log's own signature."""

    key: NoteKey
    time: int | None


class NoteSigner:
    """A secret key under its name. `secret`: the 32 bytes of an Ed25519 seed."""

    def __init__(self, name: str, secret: bytes) -> None:
        self._key = SigningKey(secret)
        self.key = NoteKey(name, bytes(self._key.verify_key))

    def sign(self, text: str) -> str:
        """The note: the text, which ends with a newline, an empty line, and the signature's line."""
        _check_text(text)
        return f"{text}\n{_line(self.key, bytes(self._key.sign(text.encode()).signature))}"

    def cosign(self, note: str, time: int) -> str:
        """The note with this witness's line below the others. `time`: Unix seconds. Raises VerificationFailed."""
        text, _ = split_note(note)
        key = NoteKey(self.key.name, self.key.public_key, KeyType.COSIGNATURE)
        signature = self._key.sign(_witnessed(text, time)).signature
        return note + _line(key, time.to_bytes(TIME_BYTES, "big") + bytes(signature))


def public_key_of(secret: bytes) -> bytes:
    """The public half of an Ed25519 seed, 32 bytes each."""
    return bytes(SigningKey(secret).verify_key)


def open_note(note: str, keys: Sequence[NoteKey]) -> tuple[str, tuple[NoteSignature, ...]]:
    """The text, and the signatures of those of `keys` that stand under it.

    Raises VerificationFailed where the note has another form, or a line that names one of the keys doesn't hold.
    """
    text, lines = split_note(note)
    known = {(key.name, key.key_id): key for key in keys}
    found = []
    for name, data in lines:
        key = known.get((name, data[:KEY_ID_BYTES]))
        if key is not None:
            found.append(_checked(key, text, data[KEY_ID_BYTES:]))
    return text, tuple(found)


def split_note(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    """Text, and (name, key id and signature) of each line. Raises VerificationFailed."""
    text, gap, rest = note.rpartition("\n\n")
    if not gap or len(note.encode()) > MAX_NOTE_BYTES or not rest.endswith("\n"):
        raise VerificationFailed("that is no signed note", "a text, an empty line, signatures, each with its newline")
    _check_text(text := text + "\n")
    lines = [_signature(line) for line in rest[:-1].split("\n")]
    if len(lines) > MAX_SIGNATURES:
        raise VerificationFailed("a note has too many signatures", f"{len(lines)}, at most {MAX_SIGNATURES}")
    return text, lines


def _checked(key: NoteKey, text: str, signature: bytes) -> NoteSignature:
    time, signed = None, text.encode()
    if key.type is KeyType.COSIGNATURE:
        time, signature = int.from_bytes(signature[:TIME_BYTES], "big"), signature[TIME_BYTES:]
        signed = _witnessed(text, time)
    try:
        VerifyKey(key.public_key).verify(signed, signature)
    except (BadSignatureError, ValueError) as error:
        raise VerificationFailed("a signature under the note is false", f"of {key.name}") from error
    return NoteSignature(key, time)


def _witnessed(text: str, time: int) -> bytes:
    """What a witness signs (C2SP tlog-cosignature)."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _signature(line: str) -> tuple[str, bytes]:
    name, _, encoded = line.removeprefix(_MARK).partition(" ")
    data = _decoded(encoded)
    if not line.startswith(_MARK) or not name or data is None or len(data) <= KEY_ID_BYTES:
        raise VerificationFailed("a signature's line can't be read", line[:200])
    return name, data


def _line(key: NoteKey, signature: bytes) -> str:
    return f"{_MARK}{key.name} {_encoded(key.key_id + signature)}\n"


def _check_text(text: str) -> None:
    """Raises VerificationFailed where it has no newline at its end, or a control character."""
    if not text.endswith("\n") or any(letter < " " and letter != "\n" for letter in text):
        raise VerificationFailed("that is no text of a note", "it ends with a newline and has no other controls")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes | None:
    """None where it isn't the one way of writing these bytes in base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _encoded(data) == text else None
