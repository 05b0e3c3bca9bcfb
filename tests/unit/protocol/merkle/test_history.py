"""The append-only log: published vectors, every small case, and what a liar might send."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import UsageError
from protocol.merkle import history
from protocol.merkle.history import Frontier, MemoryLog

# Inputs and roots of the Certificate Transparency reference implementation.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
FIRST = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
PAIR_OF_0 = "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
LEAF_1 = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
PAIR_OF_2 = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
LEAF_4 = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
PAIR_OF_4 = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
PAIR_OF_6 = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
FOUR_OF_0 = "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"
FOUR_OF_4 = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
INCLUSIONS = [
    (0, 1, []),
    (0, 8, [LEAF_1, PAIR_OF_2, FOUR_OF_4]),
    (5, 8, [LEAF_4, PAIR_OF_6, FOUR_OF_0]),
    (2, 3, [PAIR_OF_0]),
    (1, 5, [FIRST, PAIR_OF_2, LEAF_4]),
]
CONSISTENCIES = [
    (1, 1, []),
    (1, 8, [LEAF_1, PAIR_OF_2, FOUR_OF_4]),
    (6, 8, [PAIR_OF_4, PAIR_OF_6, FOUR_OF_0]),
    (2, 5, [PAIR_OF_2, LEAF_4]),
]
LARGEST = 33


@pytest.fixture(scope="module")
def log() -> MemoryLog:
    return MemoryLog(history.leaf_hash(bytes([i])) for i in range(LARGEST))


@pytest.fixture(scope="module")
def known_log() -> MemoryLog:
    return MemoryLog(history.leaf_hash(bytes.fromhex(text)) for text in INPUTS)


def flip(text: str, bit: int) -> str:
    return "0x" + (int(text, 16) ^ 1 << bit).to_bytes(32, "big").hex()


def test_empty_root() -> None:
    assert MemoryLog().root == "0xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_known_roots(known_log: MemoryLog) -> None:
    assert [history.root_of(known_log, size) for size in range(1, 9)] == ["0x" + root for root in ROOTS]


@pytest.mark.parametrize(("index", "size", "path"), INCLUSIONS)
def test_known_inclusion_proofs(index: int, size: int, path: list[str], known_log: MemoryLog) -> None:
    proof, leaf = tuple("0x" + text for text in path), history.leaf_hash(bytes.fromhex(INPUTS[index]))
    assert history.inclusion_proof(known_log, index, size) == proof
    assert history.verify_inclusion(leaf, index, size, proof, "0x" + ROOTS[size - 1])
    assert not history.verify_inclusion(leaf, index, size, proof, "0x" + ROOTS[size % 8])


@pytest.mark.parametrize(("old", "new", "path"), CONSISTENCIES)
def test_known_consistency_proofs(old: int, new: int, path: list[str], known_log: MemoryLog) -> None:
    proof = tuple("0x" + text for text in path)
    assert history.consistency_proof(known_log, old, new) == proof
    assert history.verify_consistency(old, new, "0x" + ROOTS[old - 1], "0x" + ROOTS[new - 1], proof)
    assert not history.verify_consistency(old, new, "0x" + ROOTS[old], "0x" + ROOTS[new - 1], proof)


def test_every_inclusion_and_no_other_place(log: MemoryLog) -> None:
    leaves = log.read([history.NodeAddress(0, i) for i in range(LARGEST)])
    for size in range(1, LARGEST + 1):
        root = history.root_of(log, size)
        for index in range(size):
            proof = history.inclusion_proof(log, index, size)
            assert history.verify_inclusion(leaves[index], index, size, proof, root)
            assert not history.verify_inclusion(leaves[index], (index + 1) % (size + 1), size, proof, root)
            assert not history.verify_inclusion(leaves[index], index, size, (*proof, root), root)
            assert not proof or not history.verify_inclusion(leaves[index], index, size, proof[:-1], root)


def test_every_consistency_and_no_other_size(log: MemoryLog) -> None:
    roots = [history.root_of(log, size) for size in range(LARGEST + 1)]
    for new in range(LARGEST + 1):
        for old in range(new + 1):
            proof = history.consistency_proof(log, old, new)
            assert history.verify_consistency(old, new, roots[old], roots[new], proof)
            assert not history.verify_consistency(old, new, roots[old], roots[new], (*proof, roots[new]))
            assert old == new or not history.verify_consistency(old, new, roots[new], roots[new], proof) or old == 0
            if 0 < old < new:
                assert not history.verify_consistency(old, new, roots[old], roots[old], proof)
                assert not history.verify_consistency(old, new, roots[old], roots[new], proof[:-1])


@given(st.data())
def test_no_changed_bit_verifies(data: st.DataObject) -> None:
    log = MemoryLog(history.leaf_hash(bytes([i])) for i in range(data.draw(st.integers(2, 40))))
    index, old = data.draw(st.integers(0, log.size - 1)), data.draw(st.integers(1, log.size - 1))
    bit = data.draw(st.integers(0, 255))
    leaf, proof = log.read([history.NodeAddress(0, index)])[0], history.inclusion_proof(log, index, log.size)
    place = data.draw(st.integers(0, len(proof) - 1))
    damaged = tuple(flip(text, bit) if i == place else text for i, text in enumerate(proof))
    assert not history.verify_inclusion(leaf, index, log.size, damaged, log.root)
    assert not history.verify_inclusion(flip(leaf, bit), index, log.size, proof, log.root)
    old_root, growth = history.root_of(log, old), history.consistency_proof(log, old, log.size)
    place = data.draw(st.integers(0, len(growth) - 1))
    damaged = tuple(flip(text, bit) if i == place else text for i, text in enumerate(growth))
    assert history.verify_consistency(old, log.size, old_root, log.root, growth)
    assert not history.verify_consistency(old, log.size, old_root, log.root, damaged)
    assert not history.verify_consistency(old, log.size, flip(old_root, bit), log.root, growth)


@given(st.integers(0, 200), st.integers(0, 60))
@settings(max_examples=30)
def test_a_log_is_taken_up_where_it_stands(stored: int, more: int) -> None:
    log = MemoryLog(history.leaf_hash(i.to_bytes(2, "big")) for i in range(stored))
    frontier = Frontier.load(log, stored)
    assert frontier.root == log.root
    for i in range(more):
        frontier.append(history.leaf_hash(i.to_bytes(3, "big")))
        log.append(history.leaf_hash(i.to_bytes(3, "big")))
    assert (frontier.size, frontier.root) == (log.size, log.root)


def test_proofs_take_one_read_of_few_nodes() -> None:
    reads: list[int] = []

    class CountingLog(MemoryLog):
        def read(self, addresses):  # type: ignore[no-untyped-def]
            reads.append(len(addresses))
            return super().read(addresses)

    log = CountingLog(history.leaf_hash(i.to_bytes(2, "big")) for i in range(5000))
    history.inclusion_proof(log, 1234, 4999)
    history.consistency_proof(log, 1234, 4999)
    assert len(reads) == 2
    assert max(reads) <= 2 * 13


def test_event_leaf_binds_subject_and_event() -> None:
    subject, event = "0x" + "11" * 32, b'{"event":"submission_received"}'
    leaf = history.event_leaf_hash(subject, event)
    assert leaf != history.event_leaf_hash("0x" + "22" * 32, event)
    assert leaf != history.event_leaf_hash(subject, event + b" ")
    with pytest.raises(UsageError):
        history.event_leaf_hash("0x11", event)


def test_impossible_proofs_are_refused(log: MemoryLog) -> None:
    for index, size in [(-1, 3), (3, 3), (0, 0)]:
        with pytest.raises(UsageError):
            history.inclusion_proof(log, index, size)
    with pytest.raises(UsageError):
        history.consistency_proof(log, 5, 4)


@pytest.mark.parametrize("hostile", ["", "0x", "zz", "0x" + "1" * 63, "0x" + "A" * 64, "0x" + "1" * 130])
def test_hostile_hashes_are_no_proof(log: MemoryLog, hostile: str) -> None:
    root = history.root_of(log, 2)
    assert not history.verify_inclusion(hostile, 0, 2, (root,), root)
    assert not history.verify_inclusion(root, 0, 2, (hostile,), root)
    assert not history.verify_inclusion(root, 0, 2, (root,) * 1000, root)
    assert not history.verify_consistency(1, 2, hostile, root, (root,))
    assert not history.verify_consistency(1, 2, root, root, (hostile,))
