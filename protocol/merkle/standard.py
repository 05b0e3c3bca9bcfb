"""OpenZeppelin's StandardMerkleTree: double-hashed leaves, sorted pairs; what `MerkleProof.sol` verifies.

In: rows of Solidity values. Out: root, proofs, and the JSON document that OpenZeppelin's JavaScript loads.
Used for earnings: a row is (account, cumulative amount in base units). A proof needs no position, because
pairs are sorted; order and repetition of rows are therefore not proved: the rows say all that counts.
Source: the "standard-v1" format of @openzeppelin/merkle-tree. Vectors: tests/unit/protocol/merkle/test_standard.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eth_abi.abi import encode

from protocol.canonical import from_hex0x, hex0x, is_hash32, keccak256
from protocol.errors import UsageError

EARNINGS_LEAF = ("address", "uint128")
MAX_PROOF_HASHES = 64


def standard_leaf(types: Sequence[str], row: Sequence[Any]) -> str:
    """keccak256(keccak256(abi.encode(row))): hashed twice, so that no inner node is also a leaf."""
    values = [from_hex0x(value) if kind == "bytes32" else value for kind, value in zip(types, row, strict=True)]
    return hex0x(keccak256(keccak256(encode(list(types), values))))


def pair_hash(a: str, b: str) -> str:
    """keccak256 of both, the smaller first."""
    low, high = sorted((from_hex0x(a), from_hex0x(b)))
    return hex0x(keccak256(low + high))


def verify_pairs(root: str, leaf: str, proof: Sequence[str]) -> bool:
    """Whether a leaf hash belongs to the tree with this root."""
    if len(proof) > MAX_PROOF_HASHES or not all(map(is_hash32, (leaf, *proof))):
        return False
    current = leaf
    for sibling in proof:
        current = pair_hash(current, sibling)
    return current == root


class StandardTree:
    """A complete binary tree in an array, root first, leaves in falling order of hash at the end.

    32-byte values and addresses are 0x-hex, integers are `int`.
    Example: `tree = StandardTree(EARNINGS_LEAF, rows); tree.root; tree.proof(0)`.
    """

    def __init__(self, types: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if not rows:
            raise UsageError("a Merkle tree needs at least one row", "no rows", "commit nothing where nothing is owed")
        self.types = tuple(types)
        self.rows = [tuple(row) for row in rows]
        leaves = [standard_leaf(types, row) for row in rows]
        self._nodes, self._slot_of_row = _build(leaves)

    @property
    def root(self) -> str:
        return self._nodes[0]

    def proof(self, row: int) -> tuple[str, ...]:
        """Sibling hashes from row number `row` up to the root."""
        slot, siblings = self._slot_of_row[row], []
        while slot:
            siblings.append(self._nodes[slot + 1 if slot % 2 else slot - 1])
            slot = (slot - 1) // 2
        return tuple(siblings)

    def as_json(self) -> dict[str, Any]:
        """The "standard-v1" document; integers as decimal strings."""
        values = [
            {"value": [str(value) for value in row], "treeIndex": slot}
            for row, slot in zip(self.rows, self._slot_of_row, strict=True)
        ]
        return {"format": "standard-v1", "leafEncoding": list(self.types), "tree": self._nodes, "values": values}


def earnings_tree(cumulative_wei: Mapping[str, int]) -> StandardTree:
    """The tree over gross cumulative earnings by account, rows in order of account."""
    return StandardTree(EARNINGS_LEAF, sorted(cumulative_wei.items()))


def verify_earnings(root: str, account: str, cumulative_wei: int, proof: Sequence[str]) -> bool:
    return verify_pairs(root, standard_leaf(EARNINGS_LEAF, (account, cumulative_wei)), proof)


def _build(leaves: Sequence[str]) -> tuple[list[str], list[int]]:
    """The tree's array, and the slot of each leaf in it."""
    num_nodes = 2 * len(leaves) - 1
    nodes, slots = [""] * num_nodes, [0] * len(leaves)
    for rank, row in enumerate(sorted(range(len(leaves)), key=leaves.__getitem__)):
        slots[row] = num_nodes - 1 - rank
        nodes[slots[row]] = leaves[row]
    for slot in reversed(range(num_nodes - len(leaves))):
        nodes[slot] = pair_hash(nodes[2 * slot + 1], nodes[2 * slot + 2])
    return nodes, slots
