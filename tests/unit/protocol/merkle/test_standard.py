"""OpenZeppelin's tree: roots and proofs as @openzeppelin/merkle-tree 1.0.8 gives them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import UsageError
from protocol.merkle.standard import (
    EARNINGS_LEAF,
    StandardTree,
    earnings_tree,
    pair_hash,
    standard_leaf,
    verify_earnings,
    verify_pairs,
)

ROOTS = {
    1: "0x96b4355dbdea99eee16b2590693b1371c7417f7efca8c969c9e68f6e47ef9bff",
    2: "0x29e7f7de1046f608d386e20958d6ecd9a4fae935d7750e02780129e68b290908",
    3: "0x62192eb8385a70e6169acddf4b13d42e2012fb0bf66ecb577e7d79e86f2beefb",
    5: "0x4f9673c232ea134d2ecb346760fc4c2994aec9e4a124bedf7918cc529b075dcf",
}
PROOF_OF_FIRST_IN_5 = (
    "0x90f4c064c46d9d384bb358061f8be0ee3d0fab9b6c976d03c226e3cf66f71006",
    "0x79cc70d4c316ec1e78e8926d5411774494411e3c5ef5d770d8d43cb909165e8a",
)
TREE_OF_3 = [
    "0x62192eb8385a70e6169acddf4b13d42e2012fb0bf66ecb577e7d79e86f2beefb",
    "0x521b25b0f087937077c6457ab383461b5a4673d0b92b1c15e238ab081d698891",
    "0x96b4355dbdea99eee16b2590693b1371c7417f7efca8c969c9e68f6e47ef9bff",
    "0x5d1280efcb52d23e333bf814ebc23cb7d89965ccf1643991f63debec64b5334d",
    "0x2056899cc3cd2fa44dcfe4d7c0bd0a8dbd05aedd3c6be61dc591f3752de2da76",
]

accounts = st.integers(0, 2**160 - 1).map(lambda n: f"0x{n:040x}")
amounts = st.integers(0, 2**128 - 1)


def account(number: int) -> str:
    return f"0x{0x1000 + number:040x}"


def rows(num_rows: int) -> list[tuple[str, int]]:
    return [(account(i), 10**18 * (i + 1)) for i in range(num_rows)]


@pytest.mark.parametrize("num_rows", ROOTS)
def test_roots_match_openzeppelin(num_rows: int) -> None:
    assert StandardTree(EARNINGS_LEAF, rows(num_rows)).root == ROOTS[num_rows]


def test_proofs_match_openzeppelin() -> None:
    assert StandardTree(EARNINGS_LEAF, rows(5)).proof(0) == PROOF_OF_FIRST_IN_5
    assert StandardTree(EARNINGS_LEAF, rows(1)).proof(0) == ()


def test_document_matches_openzeppelin() -> None:
    document = StandardTree(EARNINGS_LEAF, rows(3)).as_json()
    assert document["tree"] == TREE_OF_3
    assert document["values"][0] == {"value": [account(0), "1000000000000000000"], "treeIndex": 2}
    assert [row["treeIndex"] for row in document["values"]] == [2, 4, 3]


@given(st.dictionaries(accounts, amounts, min_size=1, max_size=40), st.data())
def test_every_row_verifies_and_no_changed_one(earned: dict[str, int], data: st.DataObject) -> None:
    tree = earnings_tree(earned)
    row = data.draw(st.integers(0, len(earned) - 1))
    who, amount = tree.rows[row]
    proof = tree.proof(row)
    assert verify_earnings(tree.root, who, amount, proof)
    assert not verify_earnings(tree.root, who, amount ^ 1 << data.draw(st.integers(0, 127)), proof)
    other = f"0x{int(who, 16) ^ 1 << data.draw(st.integers(0, 159)):040x}"
    assert not verify_earnings(tree.root, other, amount, proof)


def test_an_inner_node_is_no_leaf() -> None:
    tree = StandardTree(EARNINGS_LEAF, rows(4))
    leaves = [standard_leaf(EARNINGS_LEAF, row) for row in rows(4)]
    siblings = {leaf: tree.proof(i)[0] for i, leaf in enumerate(leaves)}
    inner = pair_hash(leaves[0], siblings[leaves[0]])
    # The node itself hashes up to the root: only the double hash of rows keeps it from being claimed as one.
    assert verify_pairs(tree.root, inner, tree.proof(0)[1:])
    assert inner not in leaves


def test_no_rows_is_an_error() -> None:
    with pytest.raises(UsageError, match="at least one row"):
        earnings_tree({})


@pytest.mark.parametrize("hostile", ["", "0x", "zz", "0x" + "1" * 128])
def test_hostile_hashes_are_no_proof(hostile: str) -> None:
    assert not verify_pairs(ROOTS[1], ROOTS[1], (hostile,))
    assert not verify_pairs(ROOTS[1], hostile, ())
    assert not verify_pairs(ROOTS[1], ROOTS[1], (ROOTS[2],) * 65)
