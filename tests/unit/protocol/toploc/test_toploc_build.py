"""Building: whole rollouts, streams of rows, conversion to bf16, and errors instead of null proofs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ProofpoolError
from protocol.toploc.activations import to_bfloat16
from protocol.toploc.build import build_proofs, build_proofs_bytes, build_rollouts
from protocol.toploc.proof import ProofPoly
from protocol.toploc.stream import ProofStream


def make_rows(num_rows: int, hidden_size: int = 128, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, hidden_size, generator=generator).bfloat16()


@pytest.mark.parametrize("ties", ["lowest", "torch-cpu"])
def test_a_batch_of_rollouts_gives_the_bytes_of_the_published_call(ties: str) -> None:
    rollouts = [make_rows(n, seed=n) for n in (1, 32, 33, 95)]
    expected = [b"".join(build_proofs_bytes(rows, 32, 128, True, ties=ties)) for rows in rollouts]
    assert build_rollouts(rollouts, ties=ties) == expected


def test_no_rollouts_give_no_columns() -> None:
    assert build_rollouts([]) == []


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=5),
    st.integers(1, 5),
    st.sampled_from(["lowest", "torch-cpu"]),
)
def test_a_stream_gives_the_same_columns_as_whole_rollouts(lengths: list[int], chunk_rows: int, ties: str) -> None:
    rollouts = [make_rows(length, 16, seed) for seed, length in enumerate(lengths)]
    stream = ProofStream(len(lengths), 16, chunk_rows=chunk_rows, topk=8, ties=ties)
    for step in range(max(lengths)):
        alive = [number for number, length in enumerate(lengths) if step < length]
        stream.push(torch.stack([rollouts[number][step] for number in alive]), alive)
    whole = [number for number, length in enumerate(lengths) if length]
    built = build_rollouts([rollouts[i] for i in whole], chunk_rows=chunk_rows, topk=8, ties=ties)
    columns = dict(zip(whole, built, strict=True))
    assert stream.finish() == [columns.get(number, b"") for number in range(len(lengths))]


def test_a_finished_stream_begins_anew() -> None:
    rows, stream = make_rows(40), ProofStream(1, 128)
    stream.extend(0, rows)
    first = stream.finish()
    for row in rows:
        stream.push(row)
    assert stream.finish() == first == build_rollouts([rows])
    assert stream.finish() == [b""]


@pytest.mark.parametrize(
    ("shape", "sequences"),
    [((2, 64), None), ((1, 128), None), ((2, 128), [0, 0]), ((1, 128), [2]), ((1, 128), [-1]), ((2, 128), [1])],
)
def test_rows_that_dont_fit_the_stream_are_refused(shape: tuple[int, int], sequences: list[int] | None) -> None:
    with pytest.raises(ProofpoolError, match="rows don't fit"):
        ProofStream(2, 128).push(make_rows(*shape), sequences)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_states_that_arent_finite_are_an_error(value: float) -> None:
    rows = make_rows(33)
    rows[32, 5] = value
    with pytest.raises(ProofpoolError, match="aren't finite"):
        build_rollouts([make_rows(3), rows])


@pytest.mark.parametrize(
    "rows",
    [make_rows(4).float(), make_rows(4).half(), make_rows(4, 127), make_rows(0), make_rows(4)[0]],
    ids=["float32", "float16", "too narrow", "no rows", "one dimension"],
)
def test_what_cant_be_proved_is_an_error(rows: torch.Tensor) -> None:
    with pytest.raises(ProofpoolError) as caught:
        build_rollouts([rows])
    assert caught.value.todo


def test_rollouts_of_two_widths_are_an_error() -> None:
    with pytest.raises(ProofpoolError, match="wrong shape"):
        build_rollouts([make_rows(4), make_rows(4, 160)])


def test_the_published_call_raises_where_the_library_gives_null_proofs() -> None:
    with pytest.raises(ProofpoolError, match="nothing to make proofs of"):
        build_proofs([], 32, 128)
    with pytest.raises(ProofpoolError, match="two formats"):
        build_proofs([make_rows(4), make_rows(4).half()], 32, 128)
    with pytest.raises(ValueError, match="topk"):
        build_proofs(make_rows(4), 32, 0, True)


def test_a_tensor_that_isnt_contiguous_is_proved_like_its_copy() -> None:
    rows = make_rows(40, 256)[:, ::2]
    assert build_rollouts([rows]) == build_rollouts([rows.contiguous()])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rounding_to_bf16_is_torchs_own(word: int) -> None:
    value = np.array([word], dtype=np.uint32).view(np.float32)
    tensor = torch.from_numpy(value)
    ours, theirs = to_bfloat16(value), tensor.bfloat16().view(torch.uint16).numpy()
    assert np.isnan(value[0]) or ours == theirs == to_bfloat16(tensor)


def test_bf16_passes_through_and_float64_is_refused() -> None:
    rows = make_rows(2)
    assert (to_bfloat16(rows) == rows.view(torch.uint16).numpy()).all()
    with pytest.raises(ProofpoolError, match="float64"):
        to_bfloat16(rows.double())


def test_a_proof_as_polynomial() -> None:
    poly = ProofPoly.from_points_tensor(torch.tensor([3, 1]), torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert (poly(3), poly(1)) == (0x3FC0, 0xC000)
    assert repr(ProofPoly([1, 2], 65497)) == "ProofPoly[65497]([1, 2])"
    assert len(ProofPoly.null(3)) == 3
    assert ProofPoly.null(3).to_bytes() == bytes(8)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], []), ([1, 1], [2, 3])])
def test_points_that_make_no_polynomial_are_refused(x: list[int], y: list[int]) -> None:
    with pytest.raises(ValueError, match=r"points|twice"):
        ProofPoly.from_points(x, y)


def test_float32_points_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        ProofPoly.from_points_tensor(torch.tensor([1]), torch.tensor([1.0]))
