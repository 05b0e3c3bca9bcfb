"""Checkpoints: signed by the log's key, of this log, and of nothing else."""

from __future__ import annotations

import pytest

from protocol.errors import VerificationFailed
from protocol.merkle.checkpoint import Checkpoint, open_checkpoint, origin_of, sign_checkpoint
from protocol.merkle.history import MemoryLog, leaf_hash
from protocol.merkle.note import KeyType, NoteKey, NoteSigner

LEDGER = "0x" + "e7" * 20
SIGNER = NoteSigner(origin_of(31337, LEDGER, 1), bytes(range(32)))
ROOT = MemoryLog(leaf_hash(bytes([n])) for n in range(3)).root


def test_a_signed_checkpoint_says_size_and_root() -> None:
    signed = open_checkpoint(sign_checkpoint(SIGNER, 3, ROOT), SIGNER.key)
    assert signed.checkpoint == Checkpoint(f"proofpool/31337/{LEDGER}/1", 3, ROOT)
    assert signed.witnesses == ()


def test_its_bytes_are_those_of_the_standard() -> None:
    origin, size, root, empty, signature, end = sign_checkpoint(SIGNER, 3, ROOT).split("\n")
    assert (origin, size, empty, end) == (SIGNER.key.name, "3", "", "")
    assert len(root) == 44 and signature.startswith(f"— {SIGNER.key.name} ")


def test_witnesses_that_are_known_are_named() -> None:
    witness = NoteSigner("witness", bytes(32))
    note = witness.cosign(sign_checkpoint(SIGNER, 3, ROOT), 1_700_000_000)
    key = NoteKey("witness", witness.key.public_key, KeyType.COSIGNATURE)
    (seen,) = open_checkpoint(note, SIGNER.key, [key]).witnesses
    assert (seen.key.name, seen.time) == ("witness", 1_700_000_000)
    assert open_checkpoint(note, SIGNER.key).witnesses == ()


def test_another_key_is_not_the_logs() -> None:
    other = NoteSigner(SIGNER.key.name, bytes(32))
    with pytest.raises(VerificationFailed, match="hasn't signed"):
        open_checkpoint(sign_checkpoint(other, 3, ROOT), SIGNER.key)


def test_a_witness_alone_vouches_for_nothing() -> None:
    witness = NoteSigner("witness", bytes(32))
    note = witness.cosign(sign_checkpoint(NoteSigner(SIGNER.key.name, bytes(32)), 3, ROOT), 5)
    with pytest.raises(VerificationFailed, match="hasn't signed"):
        open_checkpoint(note, SIGNER.key, [NoteKey("witness", witness.key.public_key, KeyType.COSIGNATURE)])


def test_another_logs_checkpoint_is_refused_even_under_this_key() -> None:
    note = SIGNER.sign(Checkpoint(origin_of(31337, LEDGER, 2), 3, ROOT).text)
    with pytest.raises(VerificationFailed, match="another log"):
        open_checkpoint(note, SIGNER.key)


def test_extensions_of_others_are_passed_over() -> None:
    text = Checkpoint(SIGNER.key.name, 3, ROOT).text + "something of theirs\n"
    assert open_checkpoint(SIGNER.sign(text), SIGNER.key).checkpoint.size == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "origin\n",
        "origin\n3\n",
        "\n3\nAAAA\n",
        f"origin\n03\n{'A' * 43}=\n",
        f"origin\n-3\n{'A' * 43}=\n",
        f"origin\n9007199254740992\n{'A' * 43}=\n",
        f"origin\n3\n{'A' * 42}==\n",
        f"origin\n3\n{'A' * 42}B=\n",
        f"origin\n３\n{'A' * 43}=\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(VerificationFailed, match="no checkpoint"):
        Checkpoint.parse(text)
