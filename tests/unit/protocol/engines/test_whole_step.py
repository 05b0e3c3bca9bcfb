"""A step as one kernel: which models take it, and that it gives what the same step in parts gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from protocol.engines import whole_step
from protocol.engines.decoder import Decoder
from protocol.engines.paged_cache import PagedCache
from protocol.engines.whole_step import WholeStep, fits
from protocol.errors import ProofpoolError
from protocol.weights import ModelConfig
from tests.unit.protocol.engines.test_decoder import BIASED, MULTI_HEAD, make_weights

NUM_STEPS, NUM_BLOCKS = 20, 3
WHOLE = pytest.mark.parametrize("config", [MULTI_HEAD, BIASED], ids=["multi-head", "biased"])


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


def in_parts(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    with monkeypatch.context() as patch:
        patch.setattr(whole_step, "MOST_WEIGHTS", 0)
        return Decoder(config, make_weights(config), torch.float32)


def states(
    step: WholeStep | Decoder, config: ModelConfig, rows: list[int], before: float = 0.0
) -> tuple[Tensor, PagedCache]:
    """[NUM_STEPS, B, H] of some rows of a hundred, each with tokens of its own, in blocks that held `before`."""
    cache = PagedCache(config, 16 * NUM_BLOCKS * 100, torch.float32)
    cache.keys[:], cache.values[:] = before, before
    tables = np.arange(NUM_BLOCKS * 100, dtype=np.uint64).reshape(100, NUM_BLOCKS)[::-1].copy()
    slots = np.array(rows, dtype=np.uint64)
    tokens = torch.randint(config.vocab_size, (NUM_STEPS, 100), generator=torch.Generator().manual_seed(2))
    call = step.step if isinstance(step, Decoder) else step
    found = [
        call(tokens[at, rows], cache, tables, slots, np.full(len(rows), at, dtype=np.uint64)) for at in range(NUM_STEPS)
    ]
    return torch.stack(found), cache


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 64])
@WHOLE
@torch.inference_mode()
def test_states_and_cache_are_those_of_the_parts(
    config: ModelConfig, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(range(num_rows))
    found, cache = states(WholeStep(config, make_weights(config)), config, rows)
    expected, expected_cache = states(in_parts(config, monkeypatch), config, rows)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(cache.keys, expected_cache.keys, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(cache.values, expected_cache.values, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_a_row_is_the_same_to_the_bit_whoever_is_beside_it() -> None:
    step = WholeStep(BIASED, make_weights(BIASED))
    together, _ = states(step, BIASED, list(range(17)))
    for rows in ([3], [16, 3], [9, 3, 1, 0, 2, 4, 5, 6]):
        some, _ = states(step, BIASED, rows)
        assert torch.equal(some, together[:, rows])


@WHOLE
@torch.inference_mode()
def test_what_blocks_held_for_others_doesnt_count(config: ModelConfig) -> None:
    step = WholeStep(config, make_weights(config))
    (clean, _), (used, _) = (states(step, config, [0, 1, 2], before) for before in (0.0, 1e30))
    assert torch.equal(clean, used)


@WHOLE
@torch.inference_mode()
def test_a_token_outside_the_vocabulary_is_refused_and_writes_nothing(config: ModelConfig) -> None:
    decoder = Decoder(config, make_weights(config), torch.float32)
    cache = PagedCache(config, 64, torch.float32)
    table, position = np.zeros((1, 1), dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    for token in (-1, config.vocab_size):
        with pytest.raises(ProofpoolError, match="vocabulary"):
            decoder.step(torch.tensor([token]), cache, table, position, position)
    assert not cache.keys.any()
    decoder.step(torch.tensor([config.vocab_size - 1]), cache, table, position, position)
    assert cache.keys.any()


def test_small_models_fit_in_float32_on_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits(MULTI_HEAD, torch.float32) and fits(BIASED, torch.float32)
    assert not fits(MULTI_HEAD, torch.bfloat16)
    assert not fits(MULTI_HEAD.model_copy(update={"intermediate_size": 100}), torch.float32), "200 is no whole panels"
    assert not fits(MULTI_HEAD.model_copy(update={"num_hidden_layers": 200}), torch.float32)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 100)
    assert not fits(MULTI_HEAD, torch.float32)


def test_none_fits_where_kernels_arent_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOFPOOL_KERNELS", "plain")
    assert not fits(MULTI_HEAD, torch.float32)
