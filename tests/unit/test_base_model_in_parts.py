"""A base model in several files is the same as in one: at the worker, the verifier, the trainer and the testnet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.engines.base import generate, requests_of
from protocol.engines.torch import TorchEngine
from protocol.engines.vllm.probe import probe_tokens, reference_logits
from protocol.errors import MalformedFile
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.weights import ModelConfig
from testnet.checking import check_task
from testnet.plan import BASE_MODEL, Plan
from testnet.rules import model_hash
from trainer.policy import Policy
from trainer.ranks import ALONE, ScaleConfig
from verifier.calibration.subject import load_subject

InParts = Callable[[Path], Path]


def test_a_worker_generates_the_same(in_parts: InParts) -> None:
    prompts = [np.array([5, 6, 7], dtype=np.int32)] * 2
    requests = requests_of(b"\1" * 32, prompts, SamplingRules(max_new_tokens=8), {0})
    found = []
    for folder in (BASE_MODEL, in_parts(BASE_MODEL)):
        engine = TorchEngine(2)
        engine.load(folder)
        found.append(sorted((one.request.sample, one.output_tokens.tolist()) for one in generate(engine, requests)))
    assert found[0] == found[1]


def test_a_verifier_and_a_trainer_have_the_same_weights(in_parts: InParts) -> None:
    folder = in_parts(BASE_MODEL)
    expected = CausalLM.load(BASE_MODEL).state_dict()
    for model in (CausalLM.load(folder), Policy.load(folder, ALONE, ScaleConfig()).model):
        found = model.state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_the_testnet_takes_it_as_another_model_of_the_same_limits(in_parts: InParts) -> None:
    folder = in_parts(BASE_MODEL)
    assert check_task(Plan(base_model=folder)) == check_task(Plan())
    assert model_hash(folder) != model_hash(BASE_MODEL)
    assert len(load_subject(folder).hashes()) == len(load_subject(BASE_MODEL).hashes()) + 3


def test_vllms_probe_reads_the_same(in_parts: InParts) -> None:
    tokens = probe_tokens(ModelConfig.load(BASE_MODEL))
    assert torch.equal(reference_logits(in_parts(BASE_MODEL), tokens), reference_logits(BASE_MODEL, tokens))


def test_a_lost_part_is_named_wherever_it_is_missed(in_parts: InParts) -> None:
    folder = in_parts(BASE_MODEL)
    (folder / "model-00002-of-00003.safetensors").unlink()
    uses: list[Callable[[], object]] = [
        lambda: TorchEngine(1).load(folder),
        lambda: CausalLM.load(folder),
        lambda: Policy.load(folder, ALONE, ScaleConfig()),
        lambda: check_task(Plan(base_model=folder)),
        lambda: load_subject(folder).hashes(),
        lambda: reference_logits(folder, torch.tensor([1])),
    ]
    for use in uses:
        with pytest.raises(MalformedFile, match="lacks model-00002-of-00003.safetensors"):
            use()
