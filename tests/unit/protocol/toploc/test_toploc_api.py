"""The published library's names, importable from one module."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import torch

from protocol.toploc import api

ROWS = torch.randn(40, 16, generator=torch.Generator().manual_seed(0)).bfloat16()


def test_a_program_of_the_published_library_runs() -> None:
    items = [ROWS[:8], *ROWS[8:]]
    proofs = api.build_proofs_bytes(items, decode_batching_size=16, topk=8)
    results = api.verify_proofs_bytes(items, proofs, decode_batching_size=16, topk=8)
    assert results == [api.VerificationResult(0, 0.0, 0.0)] * 3
    assert repr(results[0]) == "VerificationResult[exp_mismatches=0, mant_err_mean=0.0, mant_err_median=0.0]"
    polys = api.build_proofs(items, 16, 8)
    assert [poly.to_bytes() for poly in polys] == proofs
    assert api.verify_proofs(items, polys, 16, 8) == results
    in_base64 = api.build_proofs_base64(items, 16, 8)
    assert [api.ProofPoly.from_base64(text) for text in in_base64] == polys
    assert api.verify_proofs_base64(items, in_base64, 16, 8) == results


def test_a_polynomial_has_the_published_methods() -> None:
    poly = api.ProofPoly.from_points([3, 70_000], [5, 6])
    assert [poly(3 % poly.modulus), poly(70_000 % poly.modulus)] == [5, 6]
    assert poly == api.ProofPoly.from_points_tensor(torch.tensor([3, 70_000]), torch.tensor([5, 6]))
    assert poly == pickle.loads(pickle.dumps(poly)) == api.ProofPoly.from_bytes(poly.to_bytes())
    assert len(poly) == 2
    assert repr(api.ProofPoly.null(2)) == "ProofPoly[0]([0, 0])"
    assert pickle.loads(pickle.dumps(api.VerificationResult(1, 2.0, 3.0))) == api.VerificationResult(1, 2.0, 3.0)


def test_items_of_a_list_may_differ_in_shape_and_kind() -> None:
    bits = ROWS.view(torch.uint16).numpy()
    expected = api.build_proofs_bytes(ROWS, 8, 8, True)
    assert api.build_proofs_bytes([row[None, None] for row in ROWS], 8, 8, True) == expected
    assert api.build_proofs_bytes(list(bits), 8, 8, True) == expected
    mixed = [row[None] if number % 3 else row.reshape(4, 4) for number, row in enumerate(ROWS)]
    assert api.build_proofs_bytes(mixed, 8, 8, True) == expected
    assert api.build_proofs_bytes([row if n % 2 else bits[n] for n, row in enumerate(ROWS)], 8, 8, True) == expected


def test_the_digest_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.arange(100_000).tobytes())
    assert api.sha256sum(path) == api.sha256sum(str(path), 1000) == hashlib.sha256(path.read_bytes()).hexdigest()
