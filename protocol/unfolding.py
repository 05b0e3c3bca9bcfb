"""How many values a JSON text can unfold into, told before it is parsed: a few megabytes of brackets take gigabytes.

In: bytes of JSON. Out: nothing, or ValueError. Counted are commas and opening brackets, those within texts too: there
are never more values than these. A million values take some hundred megabytes at the worst; an honest page of the log
has some ten thousand, and a statement of earnings four an account.
"""

from __future__ import annotations

MAX_VALUES = 1 << 22


def check_unfolding(content: bytes | bytearray, most: int = MAX_VALUES) -> None:
    """Raises ValueError for more than `most` values.

    >>> check_unfolding(b"[[],[]]", most=2)
    Traceback (most recent call last):
    ...
    ValueError: it may hold 5 values, and 2 are read at most
    """
    num_values = 1 + sum(content.count(mark) for mark in b",[{")
    if num_values > most:
        raise ValueError(f"it may hold {num_values} values, and {most} are read at most")
