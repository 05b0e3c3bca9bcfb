"""Where a person's keys lie, and which there are: a folder of keystores, one file a key.

    PROOFPOOL_KEYS, else ~/.proofpool/keys/     mode 0700
        provider.json                           Web3 Secret Storage, mode 0600: `--keystore provider` means this file

In: a folder, or a name. Out: paths, and what can be said of each file without its password. Nothing is opened here.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json

from protocol.errors import KeyFailure, UsageError
from protocol.keystore import MAX_FILE_BYTES
from protocol.wire import Address

FOLDER_VARIABLE = "PROOFPOOL_KEYS"
FOLDER_MODE = 0o700
UNKNOWN_MODE = "?"
"""Of a file that can't be looked at."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class KeyEntry(BaseModel):
    """A file of the folder. `address` is what it says of itself: only its password can prove that.

    `problem` says what is wrong with it, and what to do; None where nothing is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    file: str
    address: Address | None
    mode: str
    problem: str | None


def keys_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where keys are made and looked for unless a command is told otherwise."""
    named = environment.get(FOLDER_VARIABLE)
    return Path(named) if named else Path.home() / ".proofpool" / "keys"


def make_folder(folder: Path) -> None:
    """Closed to everybody else from its first moment on. Raises OSError."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def key_file(name: str, folder: Path) -> Path:
    """The file of a key by its name. Raises UsageError for what is no name."""
    if _NAME.fullmatch(name) is None:
        why = f"{name!r}: letters, digits, and within it . _ -"
        raise UsageError("that is no name of a key", why, "such as `provider` or `node-1`; --folder says where it lies")
    return folder / (name if name.endswith(".json") else f"{name}.json")


def find_key(named: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The keystore that `--keystore` means: a file, or else the name of a key in the folder. Raises KeyFailure."""
    if named.is_file() or len(named.parts) > 1 or _NAME.fullmatch(str(named)) is None:
        return named
    folder = keys_folder(environment)
    found = key_file(str(named), folder)
    if found.exists():
        return found
    why = f"neither the file {named} nor {found}"
    raise KeyFailure("there is no such key", why, "`proofpool key list` shows what there is")


def list_keys(folder: Path) -> list[KeyEntry]:
    """Every keystore of the folder by name; an empty list where there is no folder. Raises OSError."""
    return [_entry(file) for file in sorted(folder.glob("*.json"))] if folder.is_dir() else []


def stated_address(file: Path) -> str | None:
    """The address that a keystore states in plain text, None where it states none that can be read."""
    if not file.is_file():  # nothing waits for a pipe's other end
        return None
    try:
        with file.open("rb") as opened:
            document = from_json(opened.read(MAX_FILE_BYTES))
    except (OSError, ValueError):
        return None
    stated = document.get("address") if isinstance(document, dict) else None
    if not isinstance(stated, str):
        return None
    address = "0x" + stated.lower().removeprefix("0x")
    return address if re.fullmatch("0x[0-9a-f]{40}", address) else None


def _entry(file: Path) -> KeyEntry:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError as error:  # a link that leads nowhere, or that nobody may follow
        why = f"it can't be read: {error.strerror}; restore the file, or remove the link"
        return KeyEntry(name=file.stem, file=str(file), address=None, mode=UNKNOWN_MODE, problem=why)
    address, problem = stated_address(file), None
    if mode & 0o077:
        problem = f"others can read it, so no command opens it: chmod 600 {file}"
    elif address is None:
        problem = "it says no address: `proofpool key import` makes a keystore of it that does, if it is one"
    return KeyEntry(name=file.stem, file=str(file), address=address, mode=f"{mode:04o}", problem=problem)
