"""How a command gets the password of a keystore: from a file, the environment, or whoever sits at the terminal.

In: what was named, and whether the command may ask. Out: the password. Never from the command line, which every
user of the machine can read; never to be printed or logged.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from protocol.errors import KeyFailure
from protocol.keystore import PASSWORD_VARIABLE, read_password


def get_password(
    what: str, password_file: Path | None, *, may_ask: bool, environment: Mapping[str, str] = os.environ
) -> str:
    """The password that opens `what`. Raises KeyFailure where there is none and nobody can be asked."""
    if password_file is None and PASSWORD_VARIABLE not in environment and may_ask and is_terminal():
        return getpass.getpass(f"password of {what}: ")
    return read_password(password_file, environment)


def choose_password(
    what: str, password_file: Path | None, *, may_ask: bool, environment: Mapping[str, str] = os.environ
) -> str:
    """A password for something new, asked for twice. Raises KeyFailure where the two differ, or it is empty."""
    asked = password_file is None and PASSWORD_VARIABLE not in environment and may_ask and is_terminal()
    password = get_password(f"{what}, a new one", password_file, may_ask=may_ask, environment=environment)
    if not password:
        raise KeyFailure("an empty password keeps nothing secret", what, "choose one that nobody guesses")
    if asked and getpass.getpass("once more: ") != password:
        raise KeyFailure("the two passwords differ", f"for {what}; nothing was written", "try again")
    return password


def is_terminal() -> bool:
    """Whether somebody sits there who can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()
