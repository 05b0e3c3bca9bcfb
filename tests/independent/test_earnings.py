"""@openzeppelin/merkle-tree on our earnings and commitment trees: it loads them, and has the same roots and proofs."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from protocol.canonical import hex0x, keccak256
from protocol.merkle.commitment import COMMITMENT_LEAF
from protocol.merkle.standard import StandardTree, earnings_tree

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 100, 257)
LARGEST = 2**128 - 1

pytestmark = pytest.mark.slow


def claims(tree: StandardTree) -> dict[str, Any]:
    proofs = [tree.proof(row) for row in range(len(tree.rows))]
    return {"document": tree.as_json(), "root": tree.root, "proofs": proofs}


def earnings(num_accounts: int) -> dict[str, Any]:
    chance = random.Random(num_accounts)
    accounts = {hex0x(chance.randbytes(20)): chance.choice((0, 1, 10**18 + 1, LARGEST)) for _ in range(num_accounts)}
    return claims(earnings_tree(accounts))


def asked(folder: Path, trees: list[dict[str, Any]]) -> list[bool]:
    done = subprocess.run(
        ["node", "check_earnings.mjs"], input=json.dumps(trees), capture_output=True, text=True, cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answers: list[bool] = json.loads(done.stdout)
    return answers


def test_it_loads_our_earnings_trees(openzeppelin: Path) -> None:
    assert asked(openzeppelin, [earnings(size) for size in SIZES]) == [True] * len(SIZES)


def test_it_loads_our_commitment_trees(openzeppelin: Path) -> None:
    rows = [[tuple(hex0x(keccak256(bytes([size, i, j]))) for j in (0, 1)) for i in range(size)] for size in SIZES[:9]]
    trees = [claims(StandardTree(COMMITMENT_LEAF, some)) for some in rows]
    assert asked(openzeppelin, trees) == [True] * len(trees)


def test_it_refuses_changed_ones(openzeppelin: Path) -> None:
    other, more, turned, swapped = (earnings(9) for _ in range(4))
    other["root"] = earnings(8)["root"]
    more["document"]["values"][3]["value"][1] = "2"
    turned["proofs"][4] = turned["proofs"][4][::-1]
    swapped["document"]["values"][0]["treeIndex"], swapped["document"]["values"][1]["treeIndex"] = (
        swapped["document"]["values"][one]["treeIndex"] for one in (1, 0)
    )
    assert asked(openzeppelin, [other, more, turned, swapped]) == [False] * 4
