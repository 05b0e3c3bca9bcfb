"""Signed notes: what others sign is read, what is changed is found, and unknown signatures do no harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import VerificationFailed
from protocol.merkle.note import KeyType, NoteKey, NoteSigner, open_note, split_note

TEXT = "a log\n17\nand more\n"
SIGNER = NoteSigner("example.org/log", bytes(range(32)))
WITNESS = NoteSigner("witness.example.org", bytes(32))
WITNESS_KEY = NoteKey(WITNESS.key.name, WITNESS.key.public_key, KeyType.COSIGNATURE)

GO_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
"""The example in the documentation of Go's golang.org/x/mod/sumdb/note, and its key."""
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"


def test_a_note_that_another_implementation_signed_is_read() -> None:
    key = NoteKey.parse(GO_KEY)
    text, (signature,) = open_note(GO_NOTE, [key])
    assert text.startswith("If you think") and signature.key.name == "PeterNeumann" and signature.time is None
    assert str(key) == GO_KEY


def test_what_is_signed_is_opened_with_its_key() -> None:
    note = SIGNER.sign(TEXT)
    text, (signature,) = open_note(note, [SIGNER.key])
    assert (text, signature.key) == (TEXT, SIGNER.key)


def test_a_witness_adds_its_line_and_says_when() -> None:
    note = WITNESS.cosign(SIGNER.sign(TEXT), 1_700_000_000)
    _, (own, seen) = open_note(note, [SIGNER.key, WITNESS_KEY])
    assert (own.key, own.time) == (SIGNER.key, None)
    assert (seen.key, seen.time) == (WITNESS_KEY, 1_700_000_000)


def test_a_witness_line_is_no_signature_of_the_log() -> None:
    """The types differ, and so do the ids: a witness's key opens nothing as a log's."""
    note = WITNESS.cosign(SIGNER.sign(TEXT), 1)
    assert open_note(note, [WITNESS.key])[1] == ()


def test_lines_of_unknown_keys_are_passed_over() -> None:
    note = SIGNER.sign(TEXT) + GO_NOTE.splitlines(keepends=True)[-1]
    assert [signature.key for signature in open_note(note, [SIGNER.key])[1]] == [SIGNER.key]
    assert open_note(note, [])[1] == ()


@given(st.integers(min_value=0, max_value=len(SIGNER.sign(TEXT)) - 1), st.integers(min_value=0, max_value=6))
def test_no_letter_may_be_another(position: int, bit: int) -> None:
    note = SIGNER.sign(TEXT)
    changed = note[:position] + chr(ord(note[position]) ^ (1 << bit)) + note[position + 1 :]
    try:
        text, signatures = open_note(changed, [SIGNER.key])
    except VerificationFailed:
        return
    assert signatures == () and text == TEXT  # its line is now somebody else's


@pytest.mark.parametrize(
    "note",
    [
        "",
        TEXT,
        TEXT + "\n",
        SIGNER.sign(TEXT)[:-1],
        SIGNER.sign(TEXT) + "\n",
        SIGNER.sign(TEXT).replace("— ", "- "),
        SIGNER.sign(TEXT).replace("=", ""),
        SIGNER.sign(TEXT).replace("log\n", "log\r\n", 1),
        f"{TEXT}\n— name AAAA\n",
        f"{TEXT}\n" + "— name AAAAAAAA\n" * 101,
        f"{'a' * (65 << 10)}\n\n— name AAAAAAAA\n",
    ],
)
def test_what_has_another_form_is_no_note(note: str) -> None:
    with pytest.raises(VerificationFailed):
        split_note(note)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\u2003b", "a\n"])
def test_names_that_would_break_a_line_are_refused(name: str) -> None:
    with pytest.raises(VerificationFailed, match="no name"):
        NoteSigner(name, bytes(32))


@pytest.mark.parametrize(
    "key", ["", "a+b", GO_KEY.replace("c74f20a3", "c74f20a4"), GO_KEY[:-4], "a+00000000+" + "A" * 44]
)
def test_what_is_no_verifier_key_is_refused(key: str) -> None:
    with pytest.raises(VerificationFailed):
        NoteKey.parse(key)


@given(st.text(max_size=200))
def test_any_text_is_a_note_or_is_refused(text: str) -> None:
    try:
        split_note(text)
    except VerificationFailed:
        return
    assert "\n\n" in text
