"""Text that somebody else may have written, made fit to be shown: nothing in it steers a terminal or fakes a line.

In: any text. Out: one line of printable characters.
"""

from __future__ import annotations


def plain(text: str) -> str:
    """With a question mark for each control, line break or other character that isn't printed.

    >>> plain("slashed\\x1b[2J\\nok")
    'slashed?[2J?ok'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)
