"""The committed base model: small, loads in transformers with the same logits, and is about as good as stated."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import testnet.base_model
from protocol.forward import CausalLM
from protocol.tokenizer import Tokenizer
from protocol.weights import ModelConfig, check_weights, load_weights
from testnet.base_model.pass_rate import pass_rate
from testnet.base_model.vocabulary import make_tokenizer
from testnet.task import MAX_NEW_TOKENS
from testnet.task import testnet_environment as load_task

FOLDER = Path(testnet.base_model.__file__).parent


@pytest.mark.parametrize("file", ["model.safetensors", "other.safetensors"])
def test_each_checkpoint_is_small_and_fits_the_configuration(file: str) -> None:
    assert (FOLDER / file).stat().st_size <= 4 * 2**20
    check_weights(ModelConfig.load(FOLDER), load_weights(FOLDER / file))
    assert ModelConfig.load(FOLDER).hidden_size >= 128, "a proof takes the top 128 values of a row"


def test_the_tokenizer_is_the_one_its_script_makes() -> None:
    assert (FOLDER / "tokenizer.json").read_text(encoding="utf-8") == make_tokenizer().to_str(pretty=True)


@torch.no_grad()
def test_logits_equal_transformers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        reference = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    model, tokenizer = CausalLM.load(FOLDER), Tokenizer.load(FOLDER)
    texts = ["State the final answer to the following arithmetic problem: 57 + 87 =57+87=144;#144", "1+1=2;#2"]
    sequences = [torch.tensor(tokenizer.encode(text)) for text in texts]
    lengths = [len(s) for s in sequences]
    logits = model.logits(model(torch.cat(sequences), lengths)).split(lengths)
    for ours, sequence in zip(logits, sequences, strict=True):
        torch.testing.assert_close(ours, reference(sequence[None]).logits[0], atol=1e-4, rtol=1e-4)


def test_the_base_model_passes_about_two_fifths() -> None:
    environment = load_task(Tokenizer.load(FOLDER))
    problems = [environment.problem(index) for index in range(128)]
    assert 0.25 <= pass_rate(CausalLM.load(FOLDER), environment, problems, MAX_NEW_TOKENS) <= 0.6


def test_the_other_model_is_another_model_about_as_good() -> None:
    environment = load_task(Tokenizer.load(FOLDER))
    other = CausalLM.of(ModelConfig.load(FOLDER), load_weights(FOLDER / "other.safetensors"))
    problems = [environment.problem(index) for index in range(128)]
    assert pass_rate(other, environment, problems, MAX_NEW_TOKENS) >= 0.25
    tokens = torch.tensor(environment.prompt(problems[0]))
    with torch.no_grad():
        ours, theirs = (model(tokens, [len(tokens)]) for model in (CausalLM.load(FOLDER), other))
    assert torch.nn.functional.cosine_similarity(ours, theirs).mean() < 0.9
