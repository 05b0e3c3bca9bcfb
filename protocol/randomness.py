"""What a seed makes: the task's seed itself, and a version-stable stream of integers from it.

In: a 32-byte seed and a label. Out: 64-bit words of SHA-256 in counter mode, and integers below a
bound by rejection. Prompts and target lengths come from here; sampling noise has its own mixer
(`protocol/sampling.py`). Vectors: tests/unit/protocol/test_randomness.py.
"""

from __future__ import annotations

import hashlib

from protocol.canonical import from_hex0x, keccak256

WORDS_PER_BLOCK = 4


def task_seed(pool_id: int, policy_version: int, node: str, counter: int, beacon_hash: str) -> bytes:
    """keccak256 over five 32-byte words: pool, policy version, node, counter, beacon(version)."""
    return keccak256(
        pool_id.to_bytes(32, "big")
        + policy_version.to_bytes(32, "big")
        + from_hex0x(node).rjust(32, b"\0")
        + counter.to_bytes(32, "big")
        + from_hex0x(beacon_hash)
    )


class SeedStream:
    """Words of SHA-256(seed ‖ len(label) ‖ label ‖ counter), big-endian uint64, four a block.

    >>> SeedStream(bytes(32), "problems").below(10) in range(10)
    True
    """

    def __init__(self, seed: bytes, label: str) -> None:
        name = label.encode()
        self._prefix = seed + len(name).to_bytes(4, "big") + name
        self._block = 0
        self._words: list[int] = []

    def word(self) -> int:
        """The next 64-bit word."""
        if not self._words:
            self._words = self._next_block()
        return self._words.pop(0)

    def below(self, bound: int) -> int:
        """Uniform in [0, bound), unbiased: words at or past the largest multiple of `bound` are skipped."""
        limit = 2**64 - 2**64 % bound
        while (word := self.word()) >= limit:
            pass
        return word % bound

    def _next_block(self) -> list[int]:
        digest = hashlib.sha256(self._prefix + self._block.to_bytes(8, "big")).digest()
        self._block += 1
        return [int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(WORDS_PER_BLOCK)]
