"""The top-k that runs where the states are: the code for a GPU, run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from protocol.errors import ProofpoolError
from protocol.toploc import device
from protocol.toploc.build import build_rollouts
from protocol.toploc.device import choose_on_device
from protocol.toploc.stream import ProofStream
from protocol.toploc.strict import verify_rollouts


def make_rows(num_rows: int, hidden_size: int = 160, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, hidden_size, generator=generator).bfloat16()


@pytest.fixture
def as_if_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor counts as one that the CPU can't reach."""
    monkeypatch.setattr(device, "is_remote", lambda hidden: isinstance(hidden, torch.Tensor))


LENGTHS = (1, 31, 32, 33, 64, 95)


def test_a_gpus_states_make_the_same_proofs(as_if_on_a_gpu: None) -> None:
    rollouts = [make_rows(length, seed=length) for length in LENGTHS]
    proofs = build_rollouts(rollouts)
    assert proofs == build_rollouts([rows.view(torch.uint16).numpy() for rows in rollouts])
    result = verify_rollouts(rollouts, proofs)
    assert (result.pooled.num_mismatches, result.pooled.mantissa_error) == (0, 0)


def test_ties_keep_the_lowest_index_and_nan_comes_first() -> None:
    patterns = torch.full((1, 40), 0x3F80, dtype=torch.int16)
    patterns[0, 30], patterns[0, 20], patterns[0, 10] = 0x7FC0, 0x7F80, -1
    chosen = choose_on_device(patterns.view(torch.bfloat16), 32, 5)
    assert sorted(chosen.indices[0].tolist()) == [0, 1, 10, 20, 30]
    assert dict(zip(chosen.indices[0].tolist(), chosen.values[0].tolist(), strict=True))[10] == 0xFFFF


def test_a_stream_keeps_open_chunks_on_the_device(as_if_on_a_gpu: None) -> None:
    rollouts = [make_rows(length, seed=length) for length in (40, 65)]
    stream = ProofStream(2, 160)
    for step in range(65):
        alive = [number for number, rows in enumerate(rollouts) if step < len(rows)]
        stream.push(torch.stack([rollouts[number][step] for number in alive]), alive)
    assert stream.finish() == build_rollouts(rollouts)
    stream.extend(1, rollouts[0])
    assert stream.finish() == [b"", build_rollouts(rollouts)[0]]


def test_rows_of_one_chunk_on_two_devices_are_refused(as_if_on_a_gpu: None) -> None:
    stream = ProofStream(1, 160)
    stream.push(make_rows(1))
    with pytest.raises(ProofpoolError, match="two devices"):
        stream.push(np.ones((1, 160), dtype=np.uint16))


def test_other_types_are_refused(as_if_on_a_gpu: None) -> None:
    with pytest.raises(ProofpoolError, match="wrong type"):
        build_rollouts([make_rows(4).half()])
    with pytest.raises(ProofpoolError, match="wrong type"):
        ProofStream(1, 160).push(make_rows(1).half())
