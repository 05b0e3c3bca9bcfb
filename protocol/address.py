"""Addresses as people copy them: wallets, explorers and our own banner write some of the digits in capitals.

In: text. Out: the address as it is compared everywhere here, in small letters; or what is wrong with it.
"""

from __future__ import annotations

import re

from protocol.errors import UsageError

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


def small(text: str, name: str) -> str:
    """An address in small letters. Raises UsageError where its capitals aren't those of its checksum (EIP-55).

    One that has no capitals, or no small letters, has no checksum; what is no address at all is left to others.
    """
    from protocol.signing import checksummed

    digits = text[2:]
    if _ADDRESS.fullmatch(text) is None or digits in (digits.lower(), digits.upper()):
        return text.lower()
    if checksummed(text) != text:
        why = f"{name} {text}: its capitals aren't those of its checksum (EIP-55)"
        todo = "a digit is wrong: copy it anew; without a capital it is taken as it is"
        raise UsageError("that address is misspelt", why, todo)
    return text.lower()


def parse_address(text: str, name: str) -> str:
    """What `name` (an option) was given. Raises UsageError for what is no address, or a misspelt one."""
    if _ADDRESS.fullmatch(text) is None:
        raise UsageError("that is no address", f"{name} {text}", "an address is 0x and 40 hexadecimal digits")
    return small(text, name)
