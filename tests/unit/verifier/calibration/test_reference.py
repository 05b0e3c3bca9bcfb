"""transformers as a second implementation: the same states and the same tokens as ours, by other code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.engines.base import generate, requests_of
from protocol.engines.torch import TorchEngine
from protocol.errors import ProofpoolError
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from testnet import base_model
from verifier.calibration.reference import ReferenceEngine, ReferenceModel

BASE_MODEL = Path(base_model.__file__).parent
SEQUENCES = (torch.tensor([5, 9, 3, 12, 7]), torch.tensor([4, 8]), torch.tensor([11, 2, 6, 6, 6, 10, 13]))
SAMPLING = SamplingRules(max_new_tokens=12)
SEED = b"\x07" * 32


@pytest.mark.parametrize("kernel", ["auto", "eager"])
@torch.inference_mode()
def test_its_states_and_logits_are_ours(kernel: str) -> None:
    tokens, lengths = torch.cat(SEQUENCES), [len(sequence) for sequence in SEQUENCES]
    theirs, ours = ReferenceModel(BASE_MODEL, "float32", kernel), CausalLM.load(BASE_MODEL)  # type: ignore[arg-type]
    hidden = theirs(tokens, lengths)
    torch.testing.assert_close(hidden, ours(tokens, lengths), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(theirs.logits(hidden), ours.logits(hidden), atol=2e-5, rtol=1e-4)


def test_its_engine_draws_the_same_tokens_in_any_batch() -> None:
    requests = requests_of(SEED, [SEQUENCES[i % 3].numpy().astype(np.int32) for i in range(6)], SAMPLING, [1])
    found = {}
    for name, engine in (
        ("ours", TorchEngine()),
        ("theirs", ReferenceEngine(4, "float32")),
        ("theirs, one by one", ReferenceEngine(1, "float32", "eager")),
    ):
        engine.load(BASE_MODEL)
        found[name] = sorted(generate(engine, requests), key=lambda c: c.sample)
    for other in ("theirs", "theirs, one by one"):
        for mine, its in zip(found["ours"], found[other], strict=True):
            np.testing.assert_array_equal(mine.output_tokens, its.output_tokens)
            assert mine.finish_reason == its.finish_reason
            np.testing.assert_allclose(mine.output_logprobs, its.output_logprobs, atol=1e-4)
            assert its.hidden_rows.dtype == torch.bfloat16
            torch.testing.assert_close(mine.hidden_rows, its.hidden_rows, atol=0.05, rtol=0.01)


def test_an_engine_without_weights_says_so() -> None:
    with pytest.raises(ProofpoolError, match="no weights"):
        ReferenceEngine(4, "float32").add([])
