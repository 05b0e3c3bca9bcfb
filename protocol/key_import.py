"""A private key from elsewhere: 64 hexadecimal digits, or another wallet's keystore.

In: a file that others can't read, or standard input. Out: the 32-byte secret, to be encrypted anew. Errors never hold
any part of what was read.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from protocol.errors import KeyFailure
from protocol.keyring import stated_address
from protocol.keystore import MAX_FILE_BYTES, check_private, read_secret
from protocol.passwords import is_terminal
from protocol.signing import Signer

STDIN = "-"
_RAW = re.compile(rb"\s*(?:0x)?([0-9a-fA-F]{64})\s*")


def read_foreign_secret(source: str, ask_password: Callable[[], str]) -> bytes:
    """The key that a file, or `-` for standard input, holds. `ask_password` opens a keystore. Raises KeyFailure."""
    content = _read(source)
    if (raw := _RAW.fullmatch(content)) is not None:
        return _checked(bytes.fromhex(raw[1].decode()), source)
    if not content.lstrip().startswith(b"{"):
        why = f"{source}: {len(content)} bytes, neither 64 hexadecimal digits nor a keystore"
        raise KeyFailure("that is no private key", why, "export it from the other wallet once more")
    if source != STDIN:
        return _from_keystore(Path(source), source, ask_password)
    with tempfile.TemporaryDirectory() as folder:  # encrypted as it is, and closed to others
        file = Path(folder) / "keystore.json"
        file.touch(mode=0o600)
        file.write_bytes(content)
        return _from_keystore(file, source, ask_password)


def _from_keystore(file: Path, source: str, ask_password: Callable[[], str]) -> bytes:
    secret = _checked(read_secret(file, ask_password()), source)
    stated, found = stated_address(file), Signer(secret).address
    if stated not in (None, found):
        why = f"{source} says {stated}, its key is that of {found}"
        raise KeyFailure("a keystore names another address than its key's", why, "take the file of the right account")
    return secret


def _read(source: str) -> bytes:
    if source == STDIN:
        if is_terminal():
            import getpass

            return getpass.getpass("private key, 64 hexadecimal digits (not shown): ").encode()
        return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)[:MAX_FILE_BYTES]
    path = Path(source)
    check_private(path)
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES)


def _checked(secret: bytes, source: str) -> bytes:
    """Zero, and numbers past the curve's order, are no keys."""
    try:
        Signer(secret)
    except ValueError:
        failure = KeyFailure("that is no private key", f"{source}: not a number of the curve", "check where it is from")
        raise failure from None
    return secret
