"""How many values a JSON text can unfold into, told before it is parsed: a few megabytes of brackets take gigabytes.

In: bytes of JSON. Out: nothing, or ValueError. Counted are commas and opening brackets, those within texts too: there
are never more values than these. A million values take some hundred megabytes at the worst; an honest page of the log
has some ten thousand, and a statement of earnings four an account.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

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


def read_json(content: bytes | str, most: int = MAX_VALUES, **hooks: Any) -> Any:
    """`json.loads` of what may be hostile; raises ValueError for more than `most` values and for nesting past 200.

    `json.loads` follows nesting until the interpreter's limit, which some libraries raise past where the stack ends.
    `hooks` are its own (`parse_int` and the like).

    >>> read_json("[" * 300)
    Traceback (most recent call last):
    ...
    ValueError: recursion limit exceeded at line 1 column 202
    """
    content = content.encode() if isinstance(content, str) else content
    check_unfolding(content, most)
    from_json(content)
    return json.loads(content, **hooks)
