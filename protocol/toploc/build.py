"""Hidden states to proofs: a batch of rollouts at once, or by the published library's calls.

In: bf16 hidden states. Out: proofs. A failure is raised, never turned into a null proof.
`build_rollouts` is for whole rollouts; rows that arrive one decode step at a time: stream.py.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import islice

from protocol.toploc.activations import Activations, require_finite
from protocol.toploc.chunks import choose_in_rollouts, published_pieces
from protocol.toploc.encoding import CHUNK_ROWS, TOPK, encode_proofs, num_chunks
from protocol.toploc.paths import Claims, choose, path
from protocol.toploc.proof import ProofPoly
from protocol.toploc.topk import Ties


def build_rollouts(
    hidden: Sequence[Activations], *, chunk_rows: int = CHUNK_ROWS, topk: int = TOPK, ties: Ties = "lowest"
) -> list[bytes]:
    """The `proofs` column of each rollout, from its hidden states [T, H] bf16 (see `to_bfloat16`).

    Raises ProofpoolError for a wrong type or shape, H < topk, or states that aren't finite.
    """
    chosen = choose_in_rollouts(hidden, chunk_rows, topk, ties)
    require_finite(chosen.values)
    claims = path().fit(chosen)
    proofs = iter(encode_proofs(claims.moduli, claims.coefficients))
    return [b"".join(islice(proofs, num_chunks(len(rows), chunk_rows))) for rows in hidden]


def build_proofs(
    activations: Sequence[Activations] | Activations,
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[ProofPoly]:
    """The published library's call: a proof of `activations[0]`, then one per `decode_batching_size` items.

    With `skip_prefill` there is no prefill item: the batches start at `activations[0]`. Each item may
    have any shape, bf16 or fp16. Raises ProofpoolError or ValueError where the library would log the
    error and return null proofs.
    """
    claims = _build(activations, decode_batching_size, topk, skip_prefill, ties)
    rows = zip(claims.coefficients.tolist(), claims.moduli.tolist(), strict=True)
    return [ProofPoly(coefficients, modulus) for coefficients, modulus in rows]


def build_proofs_bytes(
    activations: Sequence[Activations] | Activations,
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[bytes]:
    """`build_proofs`, each as 2 + 2k bytes."""
    claims = _build(activations, decode_batching_size, topk, skip_prefill, ties)
    return encode_proofs(claims.moduli, claims.coefficients)


def build_proofs_base64(
    activations: Sequence[Activations] | Activations,
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[str]:
    """`build_proofs`, each as padded base64."""
    proofs = build_proofs_bytes(activations, decode_batching_size, topk, skip_prefill, ties=ties)
    return [base64.b64encode(proof).decode() for proof in proofs]


def _build(
    activations: Sequence[Activations] | Activations, batch: int, topk: int, skip_prefill: bool, ties: Ties
) -> Claims:
    pieces, infinity = published_pieces(activations, batch, skip_prefill)
    return path().fit(choose(pieces, topk, ties, infinity))
