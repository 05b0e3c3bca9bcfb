"""Strict verification: honest states pass, forged proofs show, hostile bytes are refused and never crash."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import MalformedProof, ProofpoolError
from protocol.toploc.activations import to_bfloat16
from protocol.toploc.build import build_rollouts
from protocol.toploc.encoding import encode_proofs, parse_proofs
from protocol.toploc.pooled import NO_MATCH
from protocol.toploc.proof import ProofPoly
from protocol.toploc.strict import verify_rollouts
from protocol.toploc.verify import verify_proofs_base64, verify_proofs_bytes

Floats = npt.NDArray[np.float32]
LENGTHS = (1, 31, 32, 33, 64, 70)


def make_hidden(seed: int, lengths: tuple[int, ...] = LENGTHS, hidden_size: int = 128) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, hidden_size)).astype(np.float32) for rows in lengths]


def bf16(hidden: list[Floats]) -> list[npt.NDArray[np.uint16]]:
    return [to_bfloat16(rows) for rows in hidden]


def noisy(hidden: list[Floats], scale: float) -> list[Floats]:
    rng = np.random.default_rng(99)
    return [rows * (1 + scale * rng.standard_normal(rows.shape)).astype(np.float32) for rows in hidden]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 80), min_size=1, max_size=6),
    st.sampled_from([128, 160]),
    st.sampled_from(["lowest", "torch-cpu"]),
)
def test_what_was_built_verifies_without_a_mismatch(seed: int, lengths: list[int], hidden_size: int, ties: str) -> None:
    rows = bf16(make_hidden(seed, tuple(lengths), hidden_size))
    result = verify_rollouts(rows, build_rollouts(rows, ties=ties), ties=ties)
    assert (result.mismatch_share, result.mantissa_mean, result.mantissa_median, result.num_degenerate) == (0, 0, 0, 0)
    assert [(c.rollout, c.chunk) for c in result.chunks] == [
        (rollout, chunk) for rollout, length in enumerate(lengths) for chunk in range(-(-length // 32))
    ]


def test_the_other_tie_rule_costs_a_few_mismatches_only() -> None:
    rows = bf16(make_hidden(5, (64,) * 8))
    result = verify_rollouts(rows, build_rollouts(rows, ties="torch-cpu"))
    assert result.pooled.num_mismatches > 0
    assert max(chunk.mismatches for chunk in result.chunks) <= 6


def test_numerical_noise_stays_far_from_another_models_states() -> None:
    hidden = make_hidden(6)
    proofs = build_rollouts(bf16(hidden))
    near, far = verify_rollouts(bf16(noisy(hidden, 0.004)), proofs), verify_rollouts(bf16(make_hidden(7)), proofs)
    assert near.mismatch_share < 0.05 < 0.5 < far.mismatch_share
    assert near.mantissa_mean < 2 < 10 < far.mantissa_mean


def test_negated_states_differ_in_every_sign() -> None:
    hidden = make_hidden(8)
    result = verify_rollouts(bf16([-rows for rows in hidden]), build_rollouts(bf16(hidden)))
    assert result.mismatch_share == 1
    assert sum(chunk.exp_mismatches for chunk in result.chunks) == 0
    assert (result.mantissa_mean, result.mantissa_median) == (NO_MATCH, NO_MATCH)


def test_pooled_statistics_are_over_all_values() -> None:
    hidden = make_hidden(9)
    result = verify_rollouts(bf16(noisy(hidden, 0.01)), build_rollouts(bf16(hidden)))
    compared = [chunk.num_values - chunk.mismatches for chunk in result.chunks]
    weighted = sum(n * chunk.mantissa_mean for n, chunk in zip(compared, result.chunks, strict=True))
    assert result.pooled.num_values == 128 * len(result.chunks)
    assert result.pooled.num_mismatches == sum(chunk.mismatches for chunk in result.chunks)
    assert result.pooled.mantissa_error == pytest.approx(weighted) and isinstance(result.pooled.mantissa_error, int)
    assert result.mantissa_mean == pytest.approx(weighted / sum(compared))


def constant(value: int, num_chunks: int) -> bytes:
    coefficients = np.zeros((num_chunks, 128))
    coefficients[:, 0] = value
    return b"".join(encode_proofs(np.full(num_chunks, 65497), coefficients))


def linear(value: int, num_chunks: int) -> bytes:
    coefficients = np.zeros((num_chunks, 128))
    coefficients[:, :2] = (value, 1)
    return b"".join(encode_proofs(np.full(num_chunks, 65497), coefficients))


@pytest.mark.parametrize("forge", [constant, linear])
def test_a_padded_proof_of_low_degree_says_nothing(forge: Callable[[int, int], bytes]) -> None:
    result = verify_rollouts(bf16(make_hidden(10)), [forge(0x401A, -(-rows // 32)) for rows in LENGTHS])
    assert result.num_degenerate == len(result.chunks)


def test_a_constant_is_shown_even_with_full_degree() -> None:
    """c0 + a product over 127 guessed indices: constant where the guesses are right, of degree 127."""
    rows = bf16(make_hidden(11, (32,)))
    proof = ProofPoly.from_bytes(build_rollouts(rows)[0])
    chosen = np.sort(np.argsort(-(rows[0].ravel() & 0x7FFF).astype(np.int64), kind="stable")[:128])
    points = ProofPoly.from_points(chosen.tolist(), [0x4020] * 127 + [0x4030])
    assert len(points) == len(proof)
    (chunk,) = verify_rollouts(rows, [points.to_bytes()]).chunks
    assert chunk.degree == 127
    assert chunk.num_distinct == 2
    assert chunk.is_degenerate


def test_a_proof_in_four_bytes_is_malformed() -> None:
    with pytest.raises(MalformedProof, match="rollout 1: 4 bytes"):
        verify_rollouts(bf16(make_hidden(12, (5, 5))), [constant(0x401A, 1), bytes.fromhex("ffd9401a")])


def test_a_near_constant_for_all_indices_needs_a_modulus_that_is_refused() -> None:
    forged = ProofPoly.from_points(list(range(128)), [0x4000 + i % 64 for i in range(128)])
    data = (128).to_bytes(2, "big") + forged.to_bytes()[2:]
    parse_proofs(data, 32)
    with pytest.raises(MalformedProof, match="modulus 128"):
        verify_rollouts(bf16(make_hidden(13, (32,))), [data])


ROWS = bf16(make_hidden(14, (3, 40)))
PROOFS = build_rollouts(ROWS)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(PROOFS[1]) * 8 - 1))
def test_a_flipped_bit_is_refused_or_measured(bit: int) -> None:
    flipped = bytearray(PROOFS[1])
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        result = verify_rollouts(ROWS, [PROOFS[0], bytes(flipped)])
    except MalformedProof:
        return
    assert result.chunks[0].mismatches == 0
    # The lowest bits of c0 move every value by as little.
    assert result.pooled.num_mismatches > 50 or max(chunk.mantissa_mean for chunk in result.chunks) >= 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=600), st.binary(min_size=258, max_size=258)), min_size=2, max_size=2))
def test_hostile_columns_are_refused_or_measured(columns: list[bytes]) -> None:
    try:
        result = verify_rollouts(ROWS, columns)
    except MalformedProof:
        return
    assert result.pooled.num_values == 3 * 128


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=3), st.lists(st.text(max_size=20), max_size=3))
def test_lenient_verification_refuses_or_measures_anything(proofs: list[bytes], texts: list[str]) -> None:
    for verify, values in ((verify_proofs_bytes, proofs), (verify_proofs_base64, texts)):
        try:
            results = verify(ROWS[1], values, 20, 8, True)
        except MalformedProof:
            continue
        assert len(results) == 2


def test_columns_and_rollouts_must_correspond() -> None:
    with pytest.raises(ProofpoolError, match="nothing to verify"):
        verify_rollouts(ROWS, PROOFS[:1])
    with pytest.raises(ProofpoolError, match="nothing to verify"):
        verify_rollouts([], [])


def test_states_of_the_verifier_that_arent_finite_are_its_own_fault() -> None:
    broken = ROWS[1].copy()
    broken[7, 7] = 0x7FC0
    with pytest.raises(ProofpoolError, match="aren't finite") as caught:
        verify_rollouts([ROWS[0], broken], PROOFS)
    assert not isinstance(caught.value, MalformedProof)


def test_tensors_and_patterns_give_the_same_result() -> None:
    tensors = [torch.from_numpy(rows).view(torch.bfloat16) for rows in ROWS]
    assert verify_rollouts(tensors, PROOFS) == verify_rollouts(ROWS, PROOFS)
