"""Private keys at rest: Web3 Secret Storage files, mode 0600, opened with a password from a file or the environment.

In: a path and a password. Out: a `Signer`. A raw key is taken from the environment only on local chains.
Nothing here prints or returns a private key. Files are interchangeable with other Ethereum clients.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic_core import from_json

from protocol.errors import KeyFailure
from protocol.files import write_new
from protocol.signing import Signer

LOCAL_CHAIN_IDS = frozenset({1337, 31337})
STRONG_SCRYPT_N = 2**18
CHEAP_SCRYPT_N = 2**10
"""For testnets and tests: a millisecond instead of a second, worth nothing against somebody who has the file."""
MAX_SCRYPT_WORK = 2**23
"""n × r × p; four times what other clients write, and 1 GiB of memory at most."""
MAX_PBKDF2_ROUNDS = 2**22
KEY_BYTES = 32
MAX_FILE_BYTES = 64 << 10
"""A keystore has half a kilobyte."""
VERSION = 3
PASSWORD_VARIABLE = "PROOFPOOL_PASSWORD"
PRIVATE_KEY_VARIABLE = "PROOFPOOL_PRIVATE_KEY"


def load_signer(
    chain_id: int,
    keystore: Path | None,
    password_file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Signer:
    """The key that a process signs with: its keystore, or on a local chain PROOFPOOL_PRIVATE_KEY.

    Raises KeyFailure.
    """
    if keystore is not None:
        check_private(keystore)
        return open_keystore(keystore, read_password(password_file, environment))
    if PRIVATE_KEY_VARIABLE not in environment:
        todo = "give --keystore and --password-file, or set `keystore` and `password_file`"
        raise KeyFailure("no key to sign with", "no keystore is named", todo)
    return signer_from_environment(chain_id, environment)


def signer_from_environment(chain_id: int, environment: Mapping[str, str] = os.environ) -> Signer:
    """The raw key in PROOFPOOL_PRIVATE_KEY. Raises KeyFailure on any chain that isn't local."""
    if chain_id not in LOCAL_CHAIN_IDS:
        raise KeyFailure(
            "a raw key in the environment is for local chains only",
            f"chain id {chain_id}, {PRIVATE_KEY_VARIABLE} is set",
            "put the key into a keystore",
        )
    text = environment.get(PRIVATE_KEY_VARIABLE, "").removeprefix("0x")
    if re.fullmatch("[0-9a-fA-F]{64}", text):
        # Zero and numbers past the curve's order are no keys. The error isn't chained: it might show the key.
        with contextlib.suppress(ValueError):
            return Signer(bytes.fromhex(text))
    raise KeyFailure(f"{PRIVATE_KEY_VARIABLE} isn't a private key", f"{len(text)} characters", "give 64 hex digits")


def create_keystore(
    path: Path, password: str, *, secret: bytes | None = None, scrypt_n: int = STRONG_SCRYPT_N
) -> Signer:
    """Write a new key (or `secret`) to `path`, encrypted. Raises KeyFailure where a file is already there."""
    signer_secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
    signer = Signer(signer_secret)
    write_secret(path, password, signer_secret, scrypt_n=scrypt_n)
    return signer


def write_secret(path: Path, password: str, secret: bytes, *, scrypt_n: int = STRONG_SCRYPT_N) -> None:
    """Any 32-byte secret, such as an Ed25519 seed, as a keystore. Raises KeyFailure where a file is already there."""
    document = _keyfile_library().create_keyfile_json(secret, password.encode(), kdf="scrypt", iterations=scrypt_n)
    try:
        write_new(path, json.dumps(document).encode(), mode=0o600)
    except FileExistsError:
        todo = "choose another name: keys are never overwritten"
        raise KeyFailure("a keystore is already there", str(path), todo) from None


def open_keystore(path: Path, password: str) -> Signer:
    """Raises KeyFailure where the file is missing, readable by others, damaged, or the password is wrong."""
    return Signer(read_secret(path, password))


def read_secret(path: Path, password: str) -> bytes:
    """What a keystore holds. Raises KeyFailure as `open_keystore`."""
    keyfile = _keyfile_library()
    document = _read_document(path)
    try:
        secret = bytes(keyfile.decode_keyfile_json(document, password.encode()))
        if len(secret) == KEY_BYTES:
            return secret
        reason = f"{len(secret)} bytes"
    except Exception as error:  # the library raises a different type for each kind of damage
        reason = str(error) if "MAC" in str(error) else type(error).__name__
    # Not chained: a cause may carry key material.
    raise KeyFailure("a keystore doesn't open", f"{path}: {reason}", "check the password, or restore the file")


def read_password(password_file: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """The first line of `password_file`, else PROOFPOOL_PASSWORD. Raises KeyFailure."""
    if password_file is None:
        if PASSWORD_VARIABLE not in environment:
            raise KeyFailure(
                "no password for the keystore",
                f"neither a password file nor the variable {PASSWORD_VARIABLE}",
                "give --password-file, or set `password_file` or the variable",
            )
        return environment[PASSWORD_VARIABLE]
    check_private(password_file)
    try:
        # Some editors begin a file with a byte order mark, which nobody has typed.
        lines = password_file.read_text("utf-8-sig").splitlines()
    except ValueError as error:
        raise KeyFailure("the password file isn't text", str(password_file), "write it as UTF-8") from error
    if not lines:
        raise KeyFailure("the password file is empty", str(password_file), "put the password on its first line")
    if not lines[0]:
        raise KeyFailure("the password file's first line is empty", str(password_file), "put the password there")
    return lines[0]


def _keyfile_library() -> ModuleType:
    """The library behind keystores: 0.4 s to import, so commands that open none don't pay for it.

    Importing it raises the interpreter's recursion limit a hundredfold (a dependency does), and then nested JSON
    from anybody overflows the stack and kills the process, instead of raising RecursionError. The limit stays.
    """
    limit = sys.getrecursionlimit()
    try:
        from eth_keyfile import keyfile
    finally:
        sys.setrecursionlimit(limit)
    return keyfile


def _read_document(path: Path) -> dict[str, object]:
    """With its names in lower case, as the library reads them: what is bounded here is what it works with."""
    content = _content(path)
    try:
        document = _lowered(from_json(content))
        if document["version"] != VERSION:
            raise ValueError("another version")
        parameters = document["crypto"]["kdfparams"]
        work = math.prod(int(parameters.get(name, 1)) for name in ("n", "r", "p"))
        rounds, key_bytes = int(parameters.get("c", 1)), int(parameters.get("dklen", KEY_BYTES))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        todo = "name a Web3 Secret Storage file, as Ethereum clients write them, or restore this one"
        raise KeyFailure("that is no keystore", f"{path}: {_damage(error)}", todo) from error
    if work > MAX_SCRYPT_WORK or rounds > MAX_PBKDF2_ROUNDS or key_bytes > KEY_BYTES:
        why = f"{path}: over n × r × p = {MAX_SCRYPT_WORK}, {MAX_PBKDF2_ROUNDS} rounds or {KEY_BYTES} bytes"
        raise KeyFailure("a keystore asks for too much work", why, "make it anew")
    return dict(document)


def _content(path: Path) -> bytes:
    """Raises KeyFailure for what is no file, or too long for a keystore: nothing waits for a pipe's other end."""
    check_private(path)
    if not path.is_file() or (num_bytes := path.stat().st_size) > MAX_FILE_BYTES:
        why = f"{path}: {f'{num_bytes} bytes' if path.is_file() else 'not a regular file'}"
        raise KeyFailure("that is no keystore", why, "name a Web3 Secret Storage file, as Ethereum clients write them")
    return path.read_bytes()


def _lowered(value: Any) -> Any:
    """Raises ValueError where two names differ in nothing but their case."""
    if not isinstance(value, dict):
        return value
    lowered = {name.lower(): _lowered(part) for name, part in value.items()}
    if len(lowered) != len(value):
        raise ValueError("a name twice")
    return lowered


def _damage(error: Exception) -> str:
    """What isn't as it must be, with nothing of the content."""
    return f"it lacks {error}" if isinstance(error, KeyError) else f"it can't be read ({type(error).__name__})"


def check_private(path: Path) -> None:
    """A secret's file must exist and be closed to group and others.

    systemd gives a service's credentials to its user by an access list, which shows as the group's bits; their folder
    is closed to everybody else.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise KeyFailure("a secret's file can't be opened", f"{path}: {error.strerror}", "check the path") from error
    closed = 0o037 if _is_credential(path) else 0o077
    if mode & closed:
        raise KeyFailure("others can read a secret's file", f"{path} has mode {mode:04o}", f"chmod 600 {path}")


def _is_credential(path: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether it is one of the credentials of this service (systemd.exec(5), `LoadCredential=`)."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    return folder is not None and path.parent == Path(folder)
