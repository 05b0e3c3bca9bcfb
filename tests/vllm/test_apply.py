"""Patches in the running vLLM model: to the bit what it gives after a load of the version, or no change at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.engines.base import Request, generate, requests_of
from protocol.engines.names import Dtype
from protocol.engines.vllm.engine import VllmEngine
from protocol.engines.vllm.live import LiveUpdate
from protocol.errors import MalformedFile, ProofpoolError, VerificationFailed
from protocol.prover import proofs_of
from protocol.rules import SamplingRules, ToplocRules
from protocol.weights import ModelConfig, load_weights
from testnet.plan import BASE_MODEL
from tests.unit.protocol.engines.test_decoder import MULTI_HEAD, make_weights
from tests.vllm.conftest import StartEngine
from tests.worlds.versions import Versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QWEN2 = MULTI_HEAD.model_copy(update={"model_type": "qwen2", "num_key_value_heads": 2})
UNTIED = MULTI_HEAD.model_copy(update={"tie_word_embeddings": False, "vocab_size": 200})
Results = list[tuple[list[int], bytes, bytes, bytes]]
MakeVersions = Callable[..., Versions]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def make_versions(tmp_path_factory: pytest.TempPathFactory) -> MakeVersions:
    def make(config: ModelConfig, folder: Path | None = None) -> Versions:
        weights = make_weights(config) if folder is None else load_weights(folder)
        stored = {name: weights[name].bfloat16() for name in config.weight_shapes()}
        return Versions(tmp_path_factory.mktemp("versions"), config, stored, num_versions=3)

    return make


@pytest.fixture(scope="module")
def tiny(make_versions: MakeVersions) -> Versions:
    return make_versions(ModelConfig.load(BASE_MODEL), BASE_MODEL)


def make_requests(config: ModelConfig) -> list[Request]:
    prompts = [np.arange(length, dtype=np.int32) * 7 % config.vocab_size for length in (1, 4, 16, 21) for _ in range(2)]
    return requests_of(bytes(32), prompts, SamplingRules(max_new_tokens=16), [1])


def results(engine: VllmEngine, config: ModelConfig) -> Results:
    """Tokens, log-probs, states and proofs of some rollouts, to the bit."""
    completions = sorted(generate(engine, make_requests(config)), key=lambda completion: completion.sample)
    proofs = proofs_of(completions, ToplocRules(topk=16))
    return [
        (c.output_tokens.tolist(), c.output_logprobs.tobytes(), c.hidden_rows.view(torch.int16).numpy().tobytes(), p)
        for c, p in zip(completions, proofs, strict=True)
    ]


def check_patches(engine: VllmEngine, versions: Versions) -> None:
    expected = []
    for number in range(3):
        engine.load(versions.folder(number))
        expected.append(results(engine, versions.config))
    assert expected[0] != expected[1] != expected[2] != expected[0]
    for base, number in ((2, 0), (0, 1), (1, 2), (2, 1)):
        engine.apply(versions.chain(base, number), versions.folder(number))
        assert results(engine, versions.config) == expected[number]
    engine.load(versions.folder(0))
    assert results(engine, versions.config) == expected[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_patched_engine_is_a_loaded_one_to_the_bit(start_engine: StartEngine, tiny: Versions, dtype: Dtype) -> None:
    check_patches(start_engine(dtype=dtype), tiny)


@pytest.mark.parametrize("config", [QWEN2, UNTIED], ids=["qwen2-tied", "llama-untied"])
def test_so_are_other_shapes(start_engine: StartEngine, make_versions: MakeVersions, config: ModelConfig) -> None:
    check_patches(start_engine(), make_versions(config))


def test_smollm2_is_patched_to_the_bit(
    start_engine: StartEngine, make_versions: MakeVersions, smollm2_folder: Path
) -> None:
    versions = make_versions(ModelConfig.load(smollm2_folder), smollm2_folder)
    check_patches(start_engine(max_length=256), versions)


def test_patches_that_do_not_fit_change_nothing(start_engine: StartEngine, tiny: Versions, tmp_path: Path) -> None:
    engine, cut = start_engine(), tmp_path / "cut.patch"
    cut.write_bytes(tiny.patch(0, 1).read_bytes()[:-40])
    engine.load(tiny.folder(1))
    expected = results(engine, tiny.config)
    engine.load(tiny.folder(0))
    started = engine._llm
    refused: list[tuple[Path, Path, type[ProofpoolError]]] = [
        (tiny.patch(1, 2), tiny.folder(2), VerificationFailed),
        (cut, tiny.folder(1), MalformedFile),
    ]
    for patch, folder, error in refused:
        with pytest.raises(error):
            engine.apply([patch], folder)
    engine.apply([tiny.patch(0, 1)], tiny.folder(1))
    assert results(engine, tiny.config) == expected
    assert engine._llm is started


def pack_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    monkeypatch.setattr(UnquantizedLinearMethod, "process_weights_after_loading", lambda method, layer: None)


def pack_other_values(monkeypatch: pytest.MonkeyPatch) -> None:
    with_changes = LiveUpdate._with_changes
    monkeypatch.setattr(
        LiveUpdate, "_with_changes", lambda update, name, stored: with_changes(update, name, stored).flip(0)
    )


@pytest.mark.parametrize(
    ("break_it", "why"),
    [(pack_nothing, "old packed matrix"), (pack_other_values, "doesn't compute with the weights")],
    ids=["not packed", "packed wrongly"],
)
def test_half_a_patch_is_noticed_and_nothing_is_generated_with_it(
    start_engine: StartEngine,
    tiny: Versions,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    why: str,
) -> None:
    engine = start_engine()
    engine.load(tiny.folder(0))
    with monkeypatch.context() as patched, pytest.raises(ProofpoolError, match=why):
        break_it(patched)
        engine.apply([tiny.patch(0, 1)], tiny.folder(1))
    with pytest.raises(ProofpoolError, match="no weights"):
        engine.add(make_requests(tiny.config))
    with pytest.raises(ProofpoolError, match="no weights"):
        engine.apply([tiny.patch(0, 1)], tiny.folder(1))
    engine.load(tiny.folder(1))
    assert len(results(engine, tiny.config)) == len(make_requests(tiny.config))


def test_an_engine_at_work_takes_no_patch(start_engine: StartEngine, tiny: Versions) -> None:
    engine = start_engine()
    engine.load(tiny.folder(0))
    engine.add(make_requests(tiny.config))
    engine.step()
    with pytest.raises(ProofpoolError, match="has work"):
        engine.apply([tiny.patch(0, 1)], tiny.folder(1))
    engine.abort()
