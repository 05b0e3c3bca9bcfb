"""The torch engine's decoder against the forward pass that everybody shares: other code, the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from protocol.engines import whole_step
from protocol.engines.decoder import Decoder
from protocol.engines.paged_cache import PagedCache, num_blocks
from protocol.errors import MalformedFile, ProofpoolError
from protocol.forward import CausalLM
from protocol.packing import Packing
from protocol.weights import ModelConfig

PROMPTS, NUM_STEPS = (5, 16, 33, 1), 20
MULTI_HEAD = ModelConfig(
    model_type="llama", vocab_size=40, hidden_size=128, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, head_dim=32, max_position_embeddings=64, tie_word_embeddings=True,
)  # fmt: skip
GROUPED = ModelConfig(
    model_type="qwen2", vocab_size=50, hidden_size=192, intermediate_size=200, num_hidden_layers=3,
    num_attention_heads=6, num_key_value_heads=2, head_dim=40, max_position_embeddings=64,
)  # fmt: skip


BIASED = ModelConfig(
    model_type="llama", vocab_size=50, hidden_size=192, intermediate_size=96, num_hidden_layers=3, attention_bias=True,
    num_attention_heads=6, num_key_value_heads=2, head_dim=32, max_position_embeddings=64,
)  # fmt: skip


@pytest.fixture(params=["whole", "in parts", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setenv("PROOFPOOL_KERNELS", "plain")
    if request.param == "in parts":
        monkeypatch.setattr(whole_step, "MOST_WEIGHTS", 0)
    return str(request.param)


def make_weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=source) * 0.1 + ("norm" in name)
        for name, shape in config.weight_shapes().items()
    }


def decoded(config: ModelConfig, dtype: torch.dtype, sequences: list[torch.Tensor]) -> list[torch.Tensor]:
    """States [NUM_STEPS + 1, H] of each sequence from its prompt's last token on, by prefill and steps."""
    decoder = Decoder(config, make_weights(config), dtype)
    cache = PagedCache(config, 512, decoder.cache_dtype)
    cache.take(3)  # so that a row's first block isn't number 0
    tables = [cache.take(num_blocks(length + NUM_STEPS)) for length in PROMPTS]
    packing = Packing.of(PROMPTS)
    prompts = torch.cat([sequence[:length] for sequence, length in zip(sequences, PROMPTS, strict=True)])
    slots = np.array([2, 0, 3, 1], dtype=np.uint64)
    table = np.zeros((4, max(map(len, tables))), dtype=np.uint64)
    for slot, blocks in zip(slots, tables, strict=True):
        table[slot, : len(blocks)] = blocks
    found = [decoder.prefill(prompts, packing, cache, tables)[packing.last_rows]]
    for step in range(NUM_STEPS):
        positions = np.array(PROMPTS, dtype=np.uint64) + np.uint64(step)
        tokens = torch.stack([sequence[int(at)] for sequence, at in zip(sequences, positions, strict=True)])
        found.append(decoder.step(tokens, cache, table, slots, positions))
    return list(torch.stack(found, dim=1))


@pytest.mark.parametrize("config", [MULTI_HEAD, GROUPED, BIASED], ids=["multi-head", "grouped", "biased"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.1)], ids=["f32", "bf16"])
@torch.inference_mode()
def test_states_are_those_of_a_packed_forward(
    kernels: str, config: ModelConfig, dtype: torch.dtype, tolerance: float
) -> None:
    source = torch.Generator().manual_seed(1)
    lengths = [length + NUM_STEPS for length in PROMPTS]
    sequences = [torch.randint(config.vocab_size, (length,), generator=source) for length in lengths]
    model = CausalLM.of(config, make_weights(config), dtype)
    expected = model(torch.cat(sequences), lengths).split(lengths)
    for mine, whole, prompt in zip(decoded(config, dtype, sequences), expected, PROMPTS, strict=True):
        torch.testing.assert_close(mine, whole[prompt - 1 :], atol=tolerance, rtol=0.02)


@torch.inference_mode()
def test_logits_are_the_models(kernels: str) -> None:
    for config in (MULTI_HEAD, GROUPED):
        hidden = torch.randn(7, config.hidden_size)
        weights = make_weights(config)
        mine = Decoder(config, weights, torch.float32).logits(hidden)
        torch.testing.assert_close(mine, CausalLM.of(config, weights).logits(hidden))


@torch.inference_mode()
def test_the_compiled_parts_take_extreme_values_as_the_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from protocol.engines.parts import make_parts

    both = torch.tensor([[-1e4, -100.0, -20.0, -1.0, 0.0, 1.0, 90.0, 1e4] + [1.0] * 8])
    x = torch.cat([torch.zeros(1, 8), torch.full((1, 8), 1e4), torch.full((1, 8), 1e-6)])
    compiled = make_parts(MULTI_HEAD, torch.float32)
    monkeypatch.setenv("PROOFPOOL_KERNELS", "plain")
    plain = make_parts(MULTI_HEAD, torch.float32)
    torch.testing.assert_close(compiled.swiglu(both), plain.swiglu(both), rtol=1e-5, atol=1e-6)
    weight = torch.linspace(-1, 1, 8)
    torch.testing.assert_close(compiled.norm(weight)(x), plain.norm(weight)(x))


@torch.inference_mode()
def test_a_row_past_the_models_positions_is_refused(kernels: str) -> None:
    decoder = Decoder(MULTI_HEAD, make_weights(MULTI_HEAD), torch.float32)
    cache = PagedCache(MULTI_HEAD, 128, decoder.cache_dtype)
    table, slots = np.array([cache.take(5)], dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    decoder.step(torch.tensor([1]), cache, table, slots, np.array([63], dtype=np.uint64))
    with pytest.raises(ProofpoolError, match="positions"):
        decoder.step(torch.tensor([1]), cache, table, slots, np.array([64], dtype=np.uint64))
    with pytest.raises(ProofpoolError, match="positions"):
        decoder.prefill(torch.ones(65, dtype=torch.int64), Packing.of([65]), cache, [list(range(5))])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda weights: weights.pop("model.norm.weight"),
        lambda weights: weights.update({"model.norm.weight": torch.ones(3)}),
    ],
    ids=["missing", "wrong shape"],
)
def test_weights_that_dont_fit_are_refused(spoil: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = make_weights(MULTI_HEAD)
    spoil(weights)
    with pytest.raises(MalformedFile):
        Decoder(MULTI_HEAD, weights, torch.float32)
