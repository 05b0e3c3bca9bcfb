"""The strict reader: one spelling a proof, and MalformedProof for everything else."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import MalformedProof
from protocol.toploc.build import build_rollouts
from protocol.toploc.encoding import encode_proofs, num_chunks, parse_proofs, proof_bytes

NUM_ROWS, HIDDEN_SIZE = 40, 128


@pytest.fixture(scope="module")
def column() -> bytes:
    rows = np.random.default_rng(0).integers(0x3F00, 0x4080, (NUM_ROWS, HIDDEN_SIZE)).astype(np.uint16)
    return build_rollouts([rows])[0]


def with_word(column: bytes, place: int, word: int) -> bytes:
    return column[: 2 * place] + word.to_bytes(2, "big") + column[2 * place + 2 :]


def test_a_proof_of_128_values_takes_258_bytes_and_a_rollout_one_in_32_rows(column: bytes) -> None:
    assert proof_bytes() == 258
    assert [num_chunks(rows) for rows in (1, 32, 33, 64)] == [1, 1, 2, 2]
    assert len(column) == 2 * 258


def test_what_is_read_is_written_alike(column: bytes) -> None:
    proofs = parse_proofs(column, NUM_ROWS, hidden_size=HIDDEN_SIZE)
    assert len(proofs) == 2
    assert b"".join(encode_proofs(proofs.moduli, proofs.coefficients)) == column


MALFORMED = {
    "nothing": lambda c: b"",
    "one byte less": lambda c: c[:-1],
    "one byte more": lambda c: c + b"\0",
    "a proof less": lambda c: c[:258],
    "a proof more": lambda c: c + c[:258],
    "null": lambda c: bytes(len(c)),
    "modulus below k": lambda c: with_word(c, 0, 127),
    "modulus above the prime": lambda c: with_word(c, 129, 65498),
    "coefficient at the prime": lambda c: with_word(c, 1, 65497),
    "last coefficient beyond the prime": lambda c: with_word(c, 257, 65535),
    "a constant in four bytes": lambda c: c[:4] + c[258:],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_any_other_spelling_is_refused_with_a_reason(column: bytes, name: str) -> None:
    with pytest.raises(MalformedProof) as caught:
        parse_proofs(MALFORMED[name](column), NUM_ROWS)
    assert caught.value.why
    assert caught.value.todo


def test_a_small_modulus_is_refused_where_the_chunk_cant_have_it(column: bytes) -> None:
    forged = with_word(column, 0, 128)
    parse_proofs(forged, NUM_ROWS)
    with pytest.raises(MalformedProof, match="modulus 128"):
        parse_proofs(forged, NUM_ROWS, hidden_size=HIDDEN_SIZE)


def test_a_large_chunk_may_have_a_smaller_modulus(column: bytes) -> None:
    parse_proofs(with_word(column, 0, 32768), NUM_ROWS, hidden_size=5120)
    with pytest.raises(MalformedProof, match="modulus 32767"):
        parse_proofs(with_word(column, 0, 32767), NUM_ROWS, hidden_size=5120)


@pytest.mark.parametrize("num_rows", [0, -1])
def test_a_rollout_without_rows_is_refused(num_rows: int) -> None:
    with pytest.raises(MalformedProof):
        parse_proofs(b"", num_rows)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.integers(1, 12), st.integers(1, 4), st.integers(1, 8))
def test_random_bytes_are_read_or_refused_and_what_is_read_is_canonical(
    data: bytes, num_rows: int, chunk_rows: int, topk: int
) -> None:
    try:
        proofs = parse_proofs(data, num_rows, chunk_rows=chunk_rows, topk=topk)
    except MalformedProof:
        return
    assert b"".join(encode_proofs(proofs.moduli, proofs.coefficients)) == data


def test_the_form_of_proofs_is_checked_without_torch() -> None:
    code = "import sys, protocol.toploc.encoding, protocol.toploc.strict, protocol.toploc.stream as s;"
    code += "import numpy; s.ProofStream(1, 128).push(numpy.ones(128, numpy.uint16)); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
