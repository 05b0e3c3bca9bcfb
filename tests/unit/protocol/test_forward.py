"""The shared forward: equal to transformers, equal on both paths, and blind to other sequences."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protocol.errors import ProofpoolError
from protocol.forward import CausalLM
from protocol.packing import Packing
from protocol.weights import ModelConfig, save_checkpoint

VOCAB = 50
TOLERANCE = 2e-5


def make_config(**changes: object) -> ModelConfig:
    shape = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "max_position_embeddings": 64, "tie_word_embeddings": True}
    return ModelConfig.model_validate({"model_type": "llama", **shape, **heads, **changes})


def make_model(**changes: object) -> CausalLM:
    generator = torch.Generator().manual_seed(0)
    model = CausalLM(make_config(**changes))
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    return model


def make_sequences(lengths: list[int], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCAB, (length,), generator=generator) for length in lengths]


def packed_hidden(model: CausalLM, sequences: list[Tensor]) -> tuple[Tensor, ...]:
    lengths = [len(s) for s in sequences]
    return model(torch.cat(sequences), lengths).split(lengths)


VARIANTS: list[dict[str, object]] = [
    {},
    {"num_key_value_heads": 2, "tie_word_embeddings": False},
    {"model_type": "qwen2", "num_key_value_heads": 2, "rope_theta": 1_000_000.0},
    {"attention_bias": True, "head_dim": 16},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_logits_equal_transformers(tmp_path: Path, changes: dict[str, object]) -> None:
    model = make_model(**changes)
    save_checkpoint(tmp_path / "model", model.config, model.weights())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        reference = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    sequences = make_sequences([5, 17, 33, 2])
    with torch.no_grad():
        for sequence, hidden in zip(sequences, packed_hidden(model, sequences), strict=True):
            wanted = reference(sequence[None]).logits[0]
            torch.testing.assert_close(model.logits(hidden), wanted, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("changes", VARIANTS)
@torch.inference_mode()
def test_steps_equal_the_packed_pass(changes: dict[str, object]) -> None:
    model, sequences = make_model(**changes), make_sequences([12, 9, 20])
    wanted = packed_hidden(model, sequences)
    prompts = [4, 7, 3]
    tokens = torch.cat([s[:n] for s, n in zip(sequences, prompts, strict=True)])
    hidden, cache = model.prefill(tokens, prompts, max_length=20)
    for row, last in enumerate(hidden[Packing.of(prompts).last_rows]):
        torch.testing.assert_close(last, wanted[row][prompts[row] - 1], atol=TOLERANCE, rtol=TOLERANCE)
    rows = [0, 1, 2]
    for step in range(8):
        staying = [row for row in rows if prompts[row] + step < len(sequences[row])]
        cache.keep(torch.tensor([rows.index(row) for row in staying]))
        rows = staying
        at = [prompts[row] + step for row in rows]
        hidden = model.step(torch.stack([sequences[row][i] for row, i in zip(rows, at, strict=True)]), cache)
        expected = torch.stack([wanted[row][i] for row, i in zip(rows, at, strict=True)])
        torch.testing.assert_close(hidden, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert rows == [0, 2], "the middle sequence ended and left the batch"


@torch.inference_mode()
def test_keep_repeats_a_prompt_for_its_group() -> None:
    model, (sequence,) = make_model(), make_sequences([6])
    _, cache = model.prefill(sequence, [6], max_length=8)
    cache.keep(torch.zeros(3, dtype=torch.int64))
    hidden = model.step(torch.tensor([1, 2, 1]), cache)
    torch.testing.assert_close(hidden[0], hidden[2])  # not to the bit: a product's rows may be summed in other orders
    assert not torch.allclose(hidden[0], hidden[1], atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=2, max_size=6), data=st.data())
@torch.no_grad()
def test_no_sequence_sees_another(lengths: list[int], data: st.DataObject) -> None:
    model, sequences = make_model(), make_sequences(lengths)
    changed = data.draw(st.integers(0, len(lengths) - 1))
    before = packed_hidden(model, sequences)
    sequences[changed] = (sequences[changed] + 1) % VOCAB
    after = packed_hidden(model, sequences)
    for index in range(len(lengths)):
        assert torch.equal(before[index], after[index]) == (index != changed)


@pytest.mark.parametrize("changes", VARIANTS)
@settings(max_examples=10, deadline=None)
@given(prompts=st.lists(st.integers(1, 20), min_size=1, max_size=3), lengths=st.lists(st.integers(1, 40), max_size=6))
@torch.no_grad()
def test_continuations_equal_whole_sequences(
    changes: dict[str, object], prompts: list[int], lengths: list[int]
) -> None:
    model, sequences = make_model(**changes), make_sequences([*prompts, *lengths])
    continues = [-1] * len(prompts) + [i % len(prompts) for i in range(len(lengths))]
    packing = Packing.of([len(s) for s in sequences], continues)
    found = model(torch.cat(sequences), packing).split(packing.lengths)
    whole = [s if i < 0 else torch.cat([sequences[i], s]) for s, i in zip(sequences, continues, strict=True)]
    for hidden, wanted in zip(found, packed_hidden(model, whole), strict=True):
        torch.testing.assert_close(hidden, wanted[-len(hidden) :], atol=TOLERANCE, rtol=TOLERANCE)


@torch.no_grad()
def test_no_token_sees_a_later_one() -> None:
    model, (sequence,) = make_model(), make_sequences([20])
    later = sequence.clone()
    later[12] = (later[12] + 1) % VOCAB
    before, after = model(sequence, [20]), model(later, [20])
    torch.testing.assert_close(before[:12], after[:12])
    assert not torch.allclose(before[12:], after[12:])


def test_gradients_equal_those_of_single_sequences() -> None:
    model, sequences = make_model(), make_sequences([3, 18, 17])
    sum(h.square().sum() for h in packed_hidden(model, sequences)).backward()  # type: ignore[union-attr]
    packed = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for sequence in sequences:
        model(sequence, [len(sequence)]).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(packed[name], parameter.grad, atol=1e-3, rtol=1e-4)


def test_decoding_first_leaves_the_model_trainable() -> None:
    model, (sequence,) = make_model(), make_sequences([4])
    with torch.inference_mode():
        model.prefill(sequence, [4], max_length=5)
    model(sequence, [4]).sum().backward()
    assert model.model.norm.weight.grad is not None


def test_bfloat16_stays_near_float32() -> None:
    model, sequences = make_model(), make_sequences([9, 14])
    narrow = CausalLM.of(model.config, model.weights(), torch.bfloat16)
    with torch.no_grad():
        wide, rounded = torch.cat(packed_hidden(model, sequences)), torch.cat(packed_hidden(narrow, sequences))
    assert rounded.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(wide, rounded.float()).min() > 0.99


@pytest.mark.parametrize("lengths", [[], [3, 0], [4, 4]])
def test_wrong_lengths_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ProofpoolError):
        make_model()(torch.zeros(7, dtype=torch.int64), lengths)


@torch.inference_mode()
def test_a_full_cache_and_too_long_a_sequence_are_refused() -> None:
    model = make_model()
    _, cache = model.prefill(torch.tensor([1, 2, 3]), [3], max_length=4)
    model.step(torch.tensor([1]), cache)
    with pytest.raises(ProofpoolError, match="cache is full"):
        model.step(torch.tensor([1]), cache)
    with pytest.raises(ProofpoolError, match="positions"):
        model(torch.zeros(65, dtype=torch.int64), [65])


@pytest.mark.parametrize("changes", VARIANTS)
def test_layers_of_other_kinds_are_called_and_give_the_same(changes: dict[str, object]) -> None:
    """What stands in a linear layer's place, such as one with something added, isn't passed over."""
    model, (sequence,) = make_model(**changes), make_sequences([20])
    other = make_model(**changes)
    for layer in other.layers():
        for part, name in ((layer.self_attn, "k_proj"), (layer.mlp, "gate_proj"), (layer.mlp, "down_proj")):
            mine = getattr(part, name)
            plain = torch.nn.Linear(mine.in_features, mine.out_features, bias=mine.bias is not None)
            plain.load_state_dict(mine.state_dict())
            setattr(part, name, plain)
    hidden, wanted = other(sequence, [20]), model(sequence, [20])
    torch.testing.assert_close(hidden, wanted, atol=TOLERANCE, rtol=TOLERANCE)
    hidden.square().sum().backward()
    wanted.square().sum().backward()
    theirs = dict(model.named_parameters())
    for name, parameter in other.named_parameters():
        if not name.startswith("lm_head"):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad, theirs[name].grad, atol=1e-4, rtol=1e-4)
    torch.nn.init.zeros_(other.layers()[0].mlp.down_proj.weight)
    assert not torch.allclose(other(sequence, [20]), wanted, atol=1e-3)
