"""The bloom filter of a block's header: which contracts can't have logged anything in it.

In: a header's `logsBloom` as bytes, an address. Out: whether the block may have a log of it. "No" is certain, "yes"
isn't: chains with many logs a block say yes to most. Source: the Ethereum Yellow Paper, section 4.3.1.
"""

from __future__ import annotations

from protocol.canonical import from_hex0x, keccak256

BLOOM_BYTES = 256


def may_hold(bloom: bytes, address: str) -> bool:
    """Whether a block with this bloom may have logs of the contract; False for bytes that are no bloom."""
    if len(bloom) != BLOOM_BYTES:
        return False
    bits, digest = int.from_bytes(bloom, "big"), keccak256(from_hex0x(address))
    places = (int.from_bytes(digest[i : i + 2], "big") % (8 * BLOOM_BYTES) for i in (0, 2, 4))
    return all(bits >> place & 1 for place in places)
