"""Sends proofs of nothing: it never keeps a hidden state.

What it saves in earnest: generating with an engine that can't give hidden states. Caught by: strict
parsing, and TOPLOC's comparison with the verifier's own states.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from protocol.engines.base import Completion
from protocol.toploc.encoding import num_chunks
from testnet.cheats.dishonest import Dishonest
from worker.work import Work

MODULUS = 65_497
LIKELY_BITS = 0x3F80
"""bfloat16 of 1.0, near which normalised states lie."""


class ForgedProof(Dishonest):
    """A constant of four bytes first, then a constant at full length, then random coefficients, and again."""

    def proofs(self, work: Work, completions: Sequence[Completion]) -> list[bytes]:
        topk, chunk_rows = work.rules.toploc.topk, work.rules.toploc.chunk_rows
        forgers = (short_constant, full_constant, random_proof)
        forge = forgers[work.task.counter % len(forgers)]
        chunks = [num_chunks(len(completion.output_tokens), chunk_rows) for completion in completions]
        return [b"".join(forge(topk, number) for number in range(count)) for count in chunks]


def short_constant(topk: int, number: int) -> bytes:
    """A polynomial of degree 0, written as short as it can be."""
    return _encode([LIKELY_BITS])


def full_constant(topk: int, number: int) -> bytes:
    """The same with zeros for the coefficients that honest proofs have."""
    return _encode([LIKELY_BITS] + [0] * (topk - 1))


def random_proof(topk: int, number: int) -> bytes:
    """As many coefficients as honest proofs have, drawn for the chunk of this number."""
    stream = random.Random(number)
    return _encode([stream.randrange(MODULUS) for _ in range(topk)])


def _encode(coefficients: list[int]) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in [MODULUS, *coefficients])
