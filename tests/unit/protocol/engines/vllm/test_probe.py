"""The probe's forward is the model's, layer by layer from the file; other weights than the folder's are noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from protocol.engines.vllm.probe import check_loaded, probe_tokens, reference_logits
from protocol.errors import ProofpoolError
from protocol.forward import CausalLM
from protocol.weights import ModelConfig

MakeFolder = Callable[[int], Path]


@torch.inference_mode()
def logits_of(folder: Path) -> torch.Tensor:
    model, tokens = CausalLM.load(folder), probe_tokens(ModelConfig.load(folder))
    return model.logits(model(tokens, [len(tokens)])[-1])


def test_the_reference_is_the_models_forward(make_model_folder: MakeFolder) -> None:
    folder = make_model_folder(0)
    expected = logits_of(folder)
    torch.testing.assert_close(reference_logits(folder, probe_tokens(ModelConfig.load(folder))), expected)
    check_loaded(folder, "float32", expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_weights_than_the_folders_are_noticed(make_model_folder: MakeFolder, dtype: str) -> None:
    with pytest.raises(ProofpoolError, match="doesn't compute with the weights"):
        check_loaded(make_model_folder(0), dtype, logits_of(make_model_folder(1)))


def test_logits_that_are_no_numbers_are_noticed(make_model_folder: MakeFolder) -> None:
    folder = make_model_folder(0)
    with pytest.raises(ProofpoolError, match="doesn't compute with the weights"):
        check_loaded(folder, "float32", torch.full_like(logits_of(folder), float("nan")))
