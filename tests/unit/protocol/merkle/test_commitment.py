"""Verdict commitments: what was committed can be revealed, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import UsageError
from protocol.merkle.commitment import CommitmentTree, salted_digest, verify_commitment

hashes = st.binary(min_size=32, max_size=32).map(lambda raw: "0x" + raw.hex())


def flip(text: str, bit: int) -> str:
    return "0x" + (int(text, 16) ^ 1 << bit).to_bytes(32, "big").hex()


@given(st.dictionaries(hashes, st.tuples(hashes, hashes), min_size=1, max_size=20), st.data())
def test_a_revealed_verdict_must_be_the_committed_one(
    verdicts: dict[str, tuple[str, str]], data: st.DataObject
) -> None:
    tree = CommitmentTree({key: salted_digest(digest, salt) for key, (digest, salt) in verdicts.items()})
    submission_id = data.draw(st.sampled_from(sorted(verdicts)))
    digest, salt = verdicts[submission_id]
    proof, bit = tree.proof(submission_id), data.draw(st.integers(0, 255))
    assert verify_commitment(tree.root, submission_id, digest, salt, proof)
    assert not verify_commitment(tree.root, submission_id, flip(digest, bit), salt, proof)
    assert not verify_commitment(tree.root, submission_id, digest, flip(salt, bit), proof)
    assert not verify_commitment(tree.root, flip(submission_id, bit), digest, salt, proof)
    assert not verify_commitment(flip(tree.root, bit), submission_id, digest, salt, proof)


def test_the_root_hides_the_verdict_behind_its_salt() -> None:
    digest = "0x" + "aa" * 32
    assert salted_digest(digest, "0x" + "01" * 32) != salted_digest(digest, "0x" + "02" * 32)


def test_order_of_judging_does_not_matter() -> None:
    first, second = ("0x" + "01" * 32, "0x" + "0a" * 32), ("0x" + "02" * 32, "0x" + "0b" * 32)
    assert CommitmentTree(dict([first, second])).root == CommitmentTree(dict([second, first])).root


def test_what_was_not_committed_has_no_proof() -> None:
    with pytest.raises(KeyError):
        CommitmentTree({"0x" + "01" * 32: "0x" + "0a" * 32}).proof("0x" + "02" * 32)


@pytest.mark.parametrize("short", ["0x", "0x01", "0x" + "01" * 33])
def test_a_salt_of_another_length_is_an_error(short: str) -> None:
    with pytest.raises(UsageError, match="32 bytes"):
        salted_digest("0x" + "aa" * 32, short)
