"""Header blooms: what a block surely hasn't logged."""

from __future__ import annotations

from eth_bloom import BloomFilter

from protocol.canonical import from_hex0x
from protocol.chain.bloom import BLOOM_BYTES, may_hold

ADDRESSES = [f"0x{number:040x}" for number in range(1, 60)]


def bloom_of(*addresses: str) -> bytes:
    """As another implementation makes it."""
    return int(BloomFilter.from_iterable(map(from_hex0x, addresses))).to_bytes(BLOOM_BYTES, "big")


def test_what_a_block_has_logged_is_never_denied() -> None:
    for one in ADDRESSES:
        assert may_hold(bloom_of(one), one)
        assert all(may_hold(bloom_of(*ADDRESSES), other) for other in ADDRESSES)
    assert all(may_hold(b"\xff" * BLOOM_BYTES, one) for one in ADDRESSES)


def test_what_it_hasnt_is_mostly_denied_and_no_bloom_says_nothing() -> None:
    quiet = bloom_of(ADDRESSES[0])
    assert not any(may_hold(quiet, other) for other in ADDRESSES[1:])
    assert not any(may_hold(bloom, ADDRESSES[0]) for bloom in (b"", bytes(BLOOM_BYTES), quiet[1:], quiet + b"\0"))
