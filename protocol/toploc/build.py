"""Hidden states to proofs: a batch of rollouts at once, or by the published library's calls.

In: bf16 hidden states. Out: proofs. A failure is raised, never turned into a null proof.
`build_rollouts` is what the worker uses; rows that arrive one decode step at a time: stream.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from protocol.toploc.activations import Activations, bf16_patterns, require_finite
from protocol.toploc.chunks import flat_chunks, group_chunks, group_equal, require_rows
from protocol.toploc.encoding import CHUNK_ROWS, TOPK, encode_proofs, num_chunks
from protocol.toploc.field import Field, interpolate, to_field
from protocol.toploc.modulus import Indices, injective_moduli
from protocol.toploc.proof import ProofPoly
from protocol.toploc.topk import Bits, Ties, select


def build_rollouts(
    hidden: Sequence[Activations], *, chunk_rows: int = CHUNK_ROWS, topk: int = TOPK, ties: Ties = "lowest"
) -> list[bytes]:
    """The `proofs` column of each rollout, from its hidden states [T, H] bf16 (see `to_bfloat16`).

    Raises ProofpoolError for a wrong type or shape, H < topk, or states that aren't finite.
    """
    rollouts = [bf16_patterns(rows) for rows in hidden]
    require_rows(rollouts, topk)
    proofs: dict[int, bytes] = {}
    for numbers, bits in group_chunks(rollouts, chunk_rows, ties):
        proofs.update(zip(numbers.tolist(), build_chunks(bits, topk, ties), strict=True))
    ordered = (proofs[number] for number in range(len(proofs)))
    return [b"".join(islice(ordered, num_chunks(len(rows), chunk_rows))) for rows in rollouts]


def build_chunks(bits: Bits, topk: int = TOPK, ties: Ties = "lowest") -> list[bytes]:
    """One proof a chunk, from bf16 patterns [C, N]. Raises ProofpoolError where a value isn't finite."""
    indices = select(bits, topk, ties)
    values = np.take_along_axis(bits, indices, axis=1)
    require_finite(values)
    return encode_proofs(*_prove(indices, values))


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
    chunks, infinity = flat_chunks(activations, decode_batching_size, skip_prefill)
    polys = [ProofPoly()] * len(chunks)
    for numbers, bits in group_equal(chunks):
        indices = select(bits, topk, ties, infinity)
        moduli, coefficients = _prove(indices, np.take_along_axis(bits, indices, axis=1))
        for number, modulus, row in zip(numbers, moduli, coefficients.astype(np.int64), strict=True):
            polys[number] = ProofPoly(row.tolist(), int(modulus))
    return polys


def build_proofs_bytes(
    activations: Sequence[Activations] | Activations,
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[bytes]:
    """`build_proofs`, each as 2 + 2k bytes."""
    return [p.to_bytes() for p in build_proofs(activations, decode_batching_size, topk, skip_prefill, ties=ties)]


def build_proofs_base64(
    activations: Sequence[Activations] | Activations,
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[str]:
    """`build_proofs`, each as padded base64."""
    return [p.to_base64() for p in build_proofs(activations, decode_batching_size, topk, skip_prefill, ties=ties)]


def _prove(indices: Indices, values: Bits) -> tuple[Indices, Field]:
    moduli = injective_moduli(indices)
    return moduli, interpolate(to_field(indices % moduli[:, None]), to_field(values))
