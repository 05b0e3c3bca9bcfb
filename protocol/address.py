"""Addresses as people copy them: wallets, explorers and our own banner write some of the digits in capitals.

In: text. Out: the address as it is compared everywhere here, in small letters; or what is wrong with it.
"""

from __future__ import annotations

import re

from protocol.errors import UsageError

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


def parse_address(text: str, name: str) -> str:
    """What `name` (an option) was given. Raises UsageError for what is no address."""
    if _ADDRESS.fullmatch(text) is None:
        raise UsageError("that is no address", f"{name} {text}", "an address is 0x and 40 hexadecimal digits")
    return text.lower()
