"""When two prompts are the same question: by their text, and by 13 words in a row.

In: prompts. Out: hashes to look up in sets, so that memory holds a few bytes a prompt or a word and no text. Source of
the 13 words: GPT-3 (arXiv:2005.14165), appendix C.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

GRAM_WORDS = 13
WORD = re.compile(r"\w+")


def normalised(prompt: str) -> str:
    r"""White space and case make no other question.

    >>> normalised("What is\n  1 + 1? ")
    'what is 1 + 1?'
    """
    return " ".join(prompt.split()).casefold()


def prompt_key(prompt: str) -> bytes:
    """16 bytes, the same for the same question."""
    return hashlib.blake2b(normalised(prompt).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def word_grams(prompt: str) -> Iterator[int]:
    """A 64-bit hash for each 13 words in a row, without punctuation and case; none for a shorter prompt."""
    words = WORD.findall(prompt.casefold())
    for start in range(len(words) - GRAM_WORDS + 1):
        gram = " ".join(words[start : start + GRAM_WORDS]).encode("utf-8", "surrogatepass")
        yield int.from_bytes(hashlib.blake2b(gram, digest_size=8).digest(), "big")
