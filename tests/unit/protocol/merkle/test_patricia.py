"""Merkle-Patricia tries, beside another implementation of them (`trie`, of py-evm)."""

from __future__ import annotations

import pytest
import rlp
from hypothesis import example, given
from hypothesis import strategies as st
from trie import HexaryTrie

from protocol.canonical import keccak256
from protocol.errors import VerificationFailed
from protocol.merkle.patricia import MAX_NODES, prove, proven_value

VALUES = st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=300)
KEYS = st.dictionaries(st.binary(max_size=4), st.binary(min_size=1, max_size=40), min_size=1, max_size=40)


def receipts(values: list[bytes]) -> dict[bytes, bytes]:
    return {rlp.encode(number): value for number, value in enumerate(values)}


def root_elsewhere(values: dict[bytes, bytes]) -> bytes:
    trie = HexaryTrie({})
    for key, value in values.items():
        trie[key] = value
    return bytes(trie.root_hash)


def test_a_key_may_be_the_beginning_of_another() -> None:
    values = {b"\n": b"\x01", b"\n\x00": b"\x02", b"\n\x00\x07": b"\x03"}
    for key, value in values.items():
        root, path = prove(values, key)
        assert root == root_elsewhere(values)
        assert proven_value(root, key, path) == value


@given(values=st.one_of(KEYS, VALUES.map(receipts)), data=st.data())
def test_a_proof_leads_from_the_root_to_its_value(values: dict[bytes, bytes], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(values)))
    root, path = prove(values, key)
    assert root == root_elsewhere(values) and 0 < len(path) <= MAX_NODES
    assert proven_value(root, key, path) == values[key]
    place = data.draw(st.integers(0, len(path) - 1))
    flipped = bytes([path[place][0] ^ 1]) + path[place][1:]
    for wrong in ((bytes(32), path), (root, path[:-1]), (root, [*path[:place], flipped, *path[place + 1 :]])):
        with pytest.raises(VerificationFailed):
            proven_value(wrong[0], key, wrong[1])


@given(values=KEYS, key=st.binary(max_size=4))
@example(values={b"\n": b"\x00", b"\n\x00": b"\x00"}, key=b"")
def test_what_isnt_there_has_no_proof(values: dict[bytes, bytes], key: bytes) -> None:
    root, _ = prove(values, next(iter(values)))
    every = {keccak256(node): node for one in values for node in prove(values, one)[1]}
    if key not in values:
        with pytest.raises(VerificationFailed):
            proven_value(root, key, every)


NODES = [
    b"",
    b"\x80",
    b"\xc0",
    b"\xc1\x80",
    b"\xc2\x80\x80",
    b"\xc2\x20\x80",
    b"\xf8",
    b"\xc1" * 3000,
    b"\xd1" + b"\x80" * 17,
]


@pytest.mark.parametrize("node", NODES)
def test_nodes_of_any_form_are_an_answer(node: bytes) -> None:
    for key in (b"", b"\x01"):
        with pytest.raises(VerificationFailed):
            proven_value(keccak256(node), key, [node])
