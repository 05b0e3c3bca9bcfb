"""The word of pymerkle and of rekor-verifier on a log: run by a Python that has them, imports nothing of ours.

pymerkle builds the tree from the leaves' data; roots are its own. It verifies inclusion, rekor-verifier inclusion and
consistency (pymerkle's consistency proofs aren't those of RFC 9162).
In (JSON on stdin): leaves' data, heads (size, root), inclusion proofs (index, size, path), consistency proofs (old, new
size, path). Out (JSON on stdout): for each head and proof whether they agree.
"""

import json
import sys
from collections.abc import Callable

from pymerkle import InclusionProof, InmemoryTree, InvalidProof
from pymerkle import verify_inclusion as verify_with_pymerkle
from rekor_verifier.merkle_proof import DEFAULT_HASHER, RootMismatchError, verify_consistency, verify_inclusion


def main() -> None:
    asked = json.load(sys.stdin)
    tree = InmemoryTree(algorithm="sha256")
    tree.append_entries(bytes.fromhex(leaf) for leaf in asked["leaves"])
    answers = {
        "heads": [tree.get_root(size).hex() == root for size, root in asked["heads"]],
        "inclusions": [
            [holds(by_pymerkle, tree, *proof), holds(by_rekor, tree, *proof)] for proof in asked["inclusions"]
        ],
        "consistencies": [[holds(consistent, tree, *proof)] for proof in asked["consistencies"]],
    }
    json.dump(answers, sys.stdout)


def holds(check: Callable[..., None], *arguments: object) -> bool:
    try:
        check(*arguments)
    except (InvalidProof, RootMismatchError, ValueError):
        return False
    return True


def by_pymerkle(tree: InmemoryTree, index: int, size: int, path: list[str]) -> None:
    """It counts from one, and has the leaf at the head of the path."""
    leaf = tree.get_leaf(index + 1)
    rule = tree.prove_inclusion(index + 1, size).rule
    proof = InclusionProof("sha256", True, size, index + 1, rule, [leaf, *map(bytes.fromhex, path)])
    verify_with_pymerkle(leaf, tree.get_root(size), proof, index=index + 1, size=size, algorithm="sha256")


def by_rekor(tree: InmemoryTree, index: int, size: int, path: list[str]) -> None:
    leaf, root = tree.get_leaf(index + 1).hex(), tree.get_root(size).hex()
    verify_inclusion(DEFAULT_HASHER, index, size, leaf, path, root)


def consistent(tree: InmemoryTree, old: int, new: int, path: list[str]) -> None:
    verify_consistency(DEFAULT_HASHER, old, new, path, tree.get_root(old).hex(), tree.get_root(new).hex())


main()
