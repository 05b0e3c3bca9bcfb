"""Amounts of credits and coins as people write and read them; everywhere else they are integers in base units.

In: "1.5" (whole credits or coins), or "1500wei" (base units). Out: `int` wei, exact or refused; and back to text.
"""

from __future__ import annotations

import re

from protocol.errors import UsageError

DECIMALS = 18
UNIT = 10**DECIMALS
MAX_WEI = 2**128 - 1
"""What the contracts hold an amount in."""
_WHOLE = re.compile(r"[0-9]{1,20}(\.[0-9]{1,18})?")
_WEI = re.compile(r"([0-9]{1,39}) ?wei")


def parse_amount(text: str, name: str) -> int:
    """Base units of what `name` (an option) was given. Raises UsageError for anything that isn't exact.

    >>> parse_amount("1.5", "--amount"), parse_amount("15wei", "--amount")
    (1500000000000000000, 15)
    """
    if (in_wei := _WEI.fullmatch(text)) is not None:
        wei = int(in_wei[1])
    elif _WHOLE.fullmatch(text):
        whole, _, rest = text.partition(".")
        wei = int(whole + rest.ljust(DECIMALS, "0"))
    else:
        is_finer = re.fullmatch(r"[0-9]{1,20}\.[0-9]+", text) is not None
        why = f"{name} {text}" + (f" has more than {DECIMALS} decimal places" if is_finer else "")
        todo = f"give a number such as 100 or 0.5, {DECIMALS} places at most, or base units: 15wei"
        raise UsageError("that is no amount", why, todo)
    if wei > MAX_WEI:
        raise UsageError("that is more than there can be", f"{name} {text}", f"at most {MAX_WEI}wei")
    return wei


def format_amount(wei: int) -> str:
    """In whole credits or coins, with every digit that counts.

    >>> format_amount(1500000000000000000), format_amount(-1)
    ('1.5', '-0.000000000000000001')
    """
    whole, rest = divmod(abs(wei), UNIT)
    digits = f"{whole}.{rest:0{DECIMALS}d}".rstrip("0").rstrip(".")
    return f"-{digits}" if wei < 0 else digits
