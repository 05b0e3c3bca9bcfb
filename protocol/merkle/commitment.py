"""Hidden verdicts: one Merkle root per seat and epoch, sent before any verdict is revealed.

In: for each submission that the seat judged, the salted digest of its verdict. Out: the root of
`VerdictCommitment`, proofs, and the check of a revealed verdict against the root.

A row is (submission id, salted digest); rows stand in ascending order of submission id, each id once. The
list may be shown with the root, since ids are public and digests are salted. The tree is a `StandardTree`
over ("bytes32", "bytes32"), so `MerkleProof.sol` can check it. Two rows for one submission under one root
would let a seat choose its answer afterwards: who receives the rows takes them as a mapping, and two
proofs for one id are evidence against the seat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.canonical import from_hex0x, hex0x, keccak256
from protocol.errors import UsageError
from protocol.merkle.standard import StandardTree, standard_leaf, verify_pairs

COMMITMENT_LEAF = ("bytes32", "bytes32")


def salted_digest(verdict_digest: str, salt: str) -> str:
    """keccak256(digest ‖ salt). The salt is 32 random bytes, new for each verdict: there are few possible verdicts."""
    digest, secret = from_hex0x(verdict_digest), from_hex0x(salt)
    if len(digest) != 32 or len(secret) != 32:
        raise UsageError("digest and salt are 32 bytes each", f"{len(digest)} and {len(secret)} bytes")
    return hex0x(keccak256(digest + secret))


def commitment_leaf(submission_id: str, salted: str) -> str:
    """keccak256(keccak256(submission id ‖ salted digest))."""
    return standard_leaf(COMMITMENT_LEAF, (submission_id, salted))


class CommitmentTree:
    """One seat's verdicts of an epoch, by submission id.

    Example: `CommitmentTree({id: salted_digest(verdict.id(domain), salt)}).root`.
    """

    def __init__(self, salted_digests: Mapping[str, str]) -> None:
        self.rows = sorted(salted_digests.items())
        self._position = {submission_id: i for i, (submission_id, _) in enumerate(self.rows)}
        self._tree = StandardTree(COMMITMENT_LEAF, self.rows)

    @property
    def root(self) -> str:
        return self._tree.root

    def proof(self, submission_id: str) -> tuple[str, ...]:
        """Raises KeyError where the seat committed to nothing for this submission."""
        return self._tree.proof(self._position[submission_id])


def verify_commitment(root: str, submission_id: str, verdict_digest: str, salt: str, proof: Sequence[str]) -> bool:
    """Whether a revealed verdict is the one that the root committed to."""
    return verify_pairs(root, commitment_leaf(submission_id, salted_digest(verdict_digest, salt)), proof)
