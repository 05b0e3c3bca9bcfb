"""Bytes and statistics of the published library, for all golden vectors.

pytest tests/unit/protocol/toploc/test_toploc_golden.py
"""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import MalformedProof, ProofpoolError
from protocol.toploc.build import build_proofs, build_proofs_base64, build_proofs_bytes
from protocol.toploc.proof import ProofPoly
from protocol.toploc.topk import select
from protocol.toploc.verify import VerificationResult, verify_proofs_base64, verify_proofs_bytes
from tests.unit.protocol.toploc import toploc_golden as golden

pytestmark = pytest.mark.usefixtures("path")


@pytest.mark.parametrize("name", golden.BUILT)
def test_proofs_have_the_same_bytes_with_torch_ties(name: str) -> None:
    case = golden.CASES[name]
    items = golden.items(case["tensor"], case["prefill_rows"])
    proofs = build_proofs_bytes(items, *golden.arguments(case), ties="torch-cpu")
    assert [proof.hex() for proof in proofs] == case["proofs_hex"]
    assert build_proofs_base64(items, *golden.arguments(case), ties="torch-cpu") == case["proofs_base64"]


@pytest.mark.parametrize("name", [name for name in golden.BUILT if golden.CASES[name].get("tensor_form_identical")])
def test_one_tensor_gives_the_same_proofs_as_a_list(name: str) -> None:
    case = golden.CASES[name]
    proofs = build_proofs(golden.tensor(case["tensor"]), *golden.arguments(case), ties="torch-cpu")
    assert [proof.to_bytes().hex() for proof in proofs] == case["proofs_hex"]


@pytest.mark.parametrize("name", golden.BUILT_BF16)
def test_lowest_ties_differ_only_where_the_boundary_is_tied(name: str) -> None:
    case = golden.CASES[name]
    items = golden.items(case["tensor"], case["prefill_rows"])
    proofs = build_proofs_bytes(items, *golden.arguments(case))
    for proof, expected, tied in zip(proofs, case["proofs_hex"], case["boundary_tie"], strict=True):
        assert tied or proof.hex() == expected


@pytest.mark.parametrize("name", [name for name in golden.BUILT_BF16 if golden.CASES[name]["skip_prefill"]])
def test_torch_ties_select_the_same_sets(name: str) -> None:
    case = golden.CASES[name]
    rows, step = golden.bits(case["tensor"]), case["decode_batching_size"]
    chunks = [rows[start : start + step].reshape(1, -1) for start in range(0, len(rows), step)]
    chosen = [sorted(select(chunk, case["topk"], "torch-cpu")[0].tolist()) for chunk in chunks]
    assert chosen == case["topk_index_sets"]


@pytest.mark.parametrize("name", golden.REFUSED)
def test_what_the_library_turns_into_null_proofs_is_an_error(name: str) -> None:
    case = golden.CASES[name]
    with pytest.raises((ProofpoolError, ValueError)):
        build_proofs(golden.items(case["tensor"], case["prefill_rows"]), *golden.arguments(case))


@pytest.mark.parametrize(("name", "number"), golden.VERIFIED)
def test_verification_gives_the_same_statistics(name: str, number: int) -> None:
    case = golden.CASES[name]
    expected = case["verify"][number]
    items = golden.items(expected["tensor"], case["prefill_rows"])
    results = verify_proofs_base64(items, case["proofs_base64"], *golden.arguments(case), ties="torch-cpu")
    assert_equal_to_list_path(results, expected, case["list_api_modulus_bug"])
    if "tensor_api" in expected:
        assert [r[:2] for r in rows(results)] == [pytest.approx(r[:2], rel=1e-12) for r in expected["tensor_api"]]


def assert_equal_to_list_path(
    results: list[VerificationResult], expected: dict[str, Any], has_modulus_bug: bool
) -> None:
    """Its list path doesn't reduce indices by the modulus; where that shows, only its tensor path is right."""
    if not has_modulus_bug:
        assert rows(results) == [pytest.approx(row, rel=1e-12) for row in expected["list"]]
    elif expected["perturbation"] == "same":
        assert rows(results) == [[0, 0.0, 0.0]] * len(results)


def rows(results: list[VerificationResult]) -> list[list[float]]:
    return [[r.exp_mismatches, r.mant_err_mean, r.mant_err_median] for r in results]


@pytest.mark.parametrize("vector", golden.DOCUMENT["poly"], ids=lambda v: v["note"] or str(len(v["x"])))
def test_polynomials(vector: dict[str, Any]) -> None:
    poly = ProofPoly.from_points(vector["x"], vector["y"])
    assert (poly.modulus, poly.coeffs) == (vector["modulus"], vector["coeffs"])
    assert (poly.to_bytes().hex(), poly.to_base64()) == (vector["hex"], vector["base64"])
    assert ProofPoly.from_bytes(poly.to_bytes()) == poly == ProofPoly.from_base64(poly.to_base64())


@pytest.mark.parametrize("vector", golden.DOCUMENT["decode"], ids=lambda v: v["note"] or v["input"][:12] or "empty")
def test_lenient_decoding(vector: dict[str, Any]) -> None:
    def decode() -> ProofPoly:
        if vector["kind"] == "hex":
            return ProofPoly.from_bytes(bytes.fromhex(vector["input"]))
        return ProofPoly.from_base64(vector["input"])

    if "error" in vector:
        with pytest.raises(ValueError, match="Data too short"):
            decode()
        return
    poly = decode()
    assert (poly.modulus, poly.coeffs) == (vector["modulus"], vector["coeffs"])
    assert poly.to_bytes().hex() == vector["reencoded_hex"]
    assert poly.to_base64() == vector["reencoded_base64"]


def verify_hostile(case: dict[str, Any]) -> list[list[float]]:
    proofs = [bytes.fromhex(proof) for proof in case["proofs_hex"]]
    step, topk = case["decode_batching_size"], case["topk"]
    results = verify_proofs_bytes(golden.tensor(case["tensor"]), proofs, step, topk, True, ties="torch-cpu")
    return rows(results)


REFUSED_HERE = {"fewer proofs than chunks", "more proofs than chunks (list only)", "null proofs (list only)"}


@pytest.mark.parametrize("name", [name for name in golden.HOSTILE if name not in REFUSED_HERE])
def test_hostile_proofs_get_the_statistics_of_the_tensor_path(name: str) -> None:
    case = golden.HOSTILE[name]
    assert verify_hostile(case) == [pytest.approx(row, rel=1e-12) for row in case["tensor_api"]]


@pytest.mark.parametrize("name", sorted(REFUSED_HERE))
def test_hostile_proofs_that_the_library_skips_or_dies_of_are_refused(name: str) -> None:
    with pytest.raises(MalformedProof):
        verify_hostile(golden.HOSTILE[name])
