"""Patches in a running engine: to the bit what a load of the version gives, or no change at all."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protocol.engines import packed_linear, whole_step
from protocol.engines.base import Request, generate, requests_of
from protocol.engines.places import Place
from protocol.engines.torch import TorchEngine
from protocol.errors import MalformedFile, ProofpoolError, VerificationFailed
from protocol.prover import proofs_of
from protocol.rules import SamplingRules, ToplocRules
from protocol.shardcast.patches import diff
from protocol.weights import ModelConfig, save_checkpoint
from protocol.weights_parts import WEIGHTS_FILE
from tests.unit.protocol.engines.test_decoder import BIASED, GROUPED, MULTI_HEAD, make_weights
from tests.worlds.versions import Versions

UNTIED = MULTI_HEAD.model_copy(update={"tie_word_embeddings": False, "vocab_size": 200})
CONFIGS = {"llama-tied": MULTI_HEAD, "llama-untied": UNTIED, "llama-biased": BIASED, "qwen2": GROUPED}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
LENGTHS = (1, 4, 16, 21)
NUM_VERSIONS = 4
Results = list[tuple[list[int], bytes, bytes, bytes]]
MakeVersions = Callable[..., Versions]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@pytest.fixture(scope="module")
def make_versions(tmp_path_factory: pytest.TempPathFactory) -> MakeVersions:
    """Versions of a model, made once for each way of storing it."""
    made: dict[tuple[str, torch.dtype], Versions] = {}

    def make(name: str, stored: torch.dtype = torch.bfloat16) -> Versions:
        if (name, stored) not in made:
            weights = {key: tensor.to(stored) for key, tensor in make_weights(CONFIGS[name]).items()}
            home = tmp_path_factory.mktemp(name)
            made[name, stored] = Versions(home, CONFIGS[name], weights, NUM_VERSIONS)
        return made[name, stored]

    return make


@pytest.fixture(params=["whole", "in parts", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setenv("PROOFPOOL_KERNELS", "plain")
    if request.param == "in parts":
        monkeypatch.setattr(whole_step, "MOST_WEIGHTS", 0)
    return str(request.param)


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> TorchEngine:
    engine = TorchEngine(4, dtype, 4096)
    engine.load(folder)
    return engine


def make_requests(config: ModelConfig) -> list[Request]:
    prompts = [np.arange(length, dtype=np.int32) * 7 % config.vocab_size for length in LENGTHS for _ in range(2)]
    return requests_of(bytes(32), prompts, SamplingRules(max_new_tokens=12), [1])


def results(engine: TorchEngine, config: ModelConfig) -> Results:
    """Tokens, log-probs, states and proofs of some rollouts, to the bit."""
    completions = sorted(generate(engine, make_requests(config)), key=lambda completion: completion.sample)
    proofs = proofs_of(completions, ToplocRules(topk=16))
    return [
        (c.output_tokens.tolist(), c.output_logprobs.tobytes(), c.hidden_rows.view(torch.int16).numpy().tobytes(), p)
        for c, p in zip(completions, proofs, strict=True)
    ]


def memory_of(engine: TorchEngine) -> list[Tensor]:
    """All weights in all their layouts, with what lies between them."""
    assert engine._batch is not None
    places = [place for several in engine._batch._decoder.places().values() for place in several]
    return [place.memory.view(torch.uint8) if place.memory.ndim else place.memory for place in places]


def check_same(engine: TorchEngine, versions: Versions, number: int, dtype: torch.dtype) -> None:
    other = loaded(versions.folder(number), dtype)
    for found, expected in zip(memory_of(engine), memory_of(other), strict=True):
        assert torch.equal(found, expected)
    assert results(engine, versions.config) == results(other, versions.config)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_patched_engine_is_a_loaded_one_to_the_bit(
    make_versions: MakeVersions, kernels: str, name: str, dtype: torch.dtype
) -> None:
    versions = make_versions(name)
    engine = loaded(versions.folder(0), dtype)
    assert results(engine, versions.config) != results(loaded(versions.folder(1), dtype), versions.config)
    engine.apply([versions.patch(0, 1)], versions.folder(1))
    check_same(engine, versions, 1, dtype)
    engine.apply(versions.chain(1, 3), versions.folder(3))
    check_same(engine, versions, 3, dtype)


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_however_weights_are_stored_their_file_is_never_written_to(
    make_versions: MakeVersions, stored: torch.dtype, dtype: torch.dtype
) -> None:
    """Where the engine holds them as they are stored, its memory begins as a mapping of the file."""
    versions = make_versions("llama-tied", stored)
    files = [(versions.folder(number) / WEIGHTS_FILE).read_bytes() for number in range(NUM_VERSIONS)]
    engine = loaded(versions.folder(0), dtype)
    engine.apply(versions.chain(0, 2), versions.folder(2))
    check_same(engine, versions, 2, dtype)
    assert files == [(versions.folder(number) / WEIGHTS_FILE).read_bytes() for number in range(NUM_VERSIONS)]


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_any_sequence_of_loads_and_patches_ends_in_its_version(
    make_versions: MakeVersions, data: st.DataObject
) -> None:
    """Among them patches from where the engine isn't, which are refused and change nothing."""
    versions, dtype = make_versions("qwen2"), data.draw(st.sampled_from(list(DTYPES.values())))
    held, numbers = data.draw(st.integers(0, NUM_VERSIONS - 1)), st.integers(0, NUM_VERSIONS - 1)
    engine = loaded(versions.folder(held), dtype)
    for base, number, is_load in data.draw(st.lists(st.tuples(numbers, numbers, st.booleans()), max_size=5)):
        if is_load:
            engine.load(versions.folder(number))
            held = number
        elif base == held and number != held:
            engine.apply(versions.chain(base, number), versions.folder(number))
            held = number
        else:
            with pytest.raises(VerificationFailed):
                engine.apply(versions.chain(base, number), versions.folder(number))
    check_same(engine, versions, held, dtype)


def stays_as_it_is(
    engine: TorchEngine, versions: Versions, patches: Sequence[Path], folder: Path, error: type[Exception], why: str
) -> None:
    before = [memory.clone() for memory in memory_of(engine)]
    with pytest.raises(error, match=why):
        engine.apply(patches, folder)
    assert all(torch.equal(one, other) for one, other in zip(memory_of(engine), before, strict=True))
    engine.apply([versions.patch(0, 1)], versions.folder(1))
    check_same(engine, versions, 1, torch.float32)


def test_a_patch_for_another_base_changes_nothing(make_versions: MakeVersions) -> None:
    versions = make_versions("llama-tied")
    engine = loaded(versions.folder(0))
    stays_as_it_is(engine, versions, [versions.patch(1, 2)], versions.folder(2), VerificationFailed, "the base isn't")


@pytest.mark.parametrize("order", [[], [(0, 1), (2, 3)], [(1, 2), (0, 1)]])
def test_patches_that_are_no_chain_change_nothing(make_versions: MakeVersions, order: list[tuple[int, int]]) -> None:
    versions = make_versions("llama-tied")
    patches = [versions.patch(*pair) for pair in order]
    stays_as_it_is(loaded(versions.folder(0)), versions, patches, versions.folder(1), VerificationFailed, "patch")


@pytest.mark.parametrize("place", [4, 200, 0.5, -1])
def test_a_truncated_patch_changes_nothing(make_versions: MakeVersions, tmp_path: Path, place: float) -> None:
    versions, cut = make_versions("llama-tied"), tmp_path / "cut.patch"
    whole = versions.patch(0, 1).read_bytes()
    cut.write_bytes(whole[: int(len(whole) * place) if isinstance(place, float) else place])
    stays_as_it_is(loaded(versions.folder(0)), versions, [cut], versions.folder(1), MalformedFile, "can't be read")


def test_a_patch_that_makes_another_file_than_it_says_changes_nothing(
    make_versions: MakeVersions, tmp_path: Path
) -> None:
    versions, lie = make_versions("llama-tied"), tmp_path / "lie.patch"
    old, new = (versions.folder(number) / WEIGHTS_FILE for number in (0, 1))
    diff(old, new, lie, base_version=0, policy_version=1, result_hash="0x" + "17" * 32)
    engine = loaded(versions.folder(0))
    stays_as_it_is(engine, versions, [lie], versions.folder(1), VerificationFailed, "what it promises")


def test_another_models_patch_changes_nothing(make_versions: MakeVersions) -> None:
    versions, other = make_versions("llama-tied"), make_versions("llama-untied")
    engine = loaded(versions.folder(0))
    stays_as_it_is(engine, versions, [other.patch(0, 1)], other.folder(1), VerificationFailed, "configuration")
    engine = loaded(versions.folder(0))
    stays_as_it_is(engine, versions, [other.patch(0, 1)], versions.folder(1), VerificationFailed, "the base isn't")


def test_a_model_whose_patch_adds_a_tensor_is_loaded(make_versions: MakeVersions, tmp_path: Path) -> None:
    versions, wide = make_versions("llama-tied"), tmp_path / "wide"
    weights = {name: tensor.float() for name, tensor in make_weights(versions.config).items()}
    save_checkpoint(wide, versions.config, weights)
    old, new = (folder / WEIGHTS_FILE for folder in (versions.folder(0), wide))
    diff(old, new, tmp_path / "wide.patch", base_version=0, policy_version=1)
    engine = loaded(versions.folder(0))
    stays_as_it_is(engine, versions, [tmp_path / "wide.patch"], wide, VerificationFailed, "the base isn't")


def test_an_engine_whose_weights_file_is_another_one_by_now_is_not_patched(
    make_versions: MakeVersions, tmp_path: Path
) -> None:
    """The patch fits the file, but not what was loaded from it."""
    versions, folder = make_versions("llama-tied"), tmp_path / "held"
    shutil.copytree(versions.folder(2), folder)
    engine = loaded(folder)
    shutil.rmtree(folder)
    shutil.copytree(versions.folder(0), folder)
    before = [memory.clone() for memory in memory_of(engine)]
    with pytest.raises(VerificationFailed, match="holds other weights"):
        engine.apply([versions.patch(0, 1)], versions.folder(1))
    assert all(torch.equal(one, other) for one, other in zip(memory_of(engine), before, strict=True))


def test_a_base_that_is_gone_is_an_error_and_no_change(make_versions: MakeVersions, tmp_path: Path) -> None:
    versions, folder = make_versions("llama-tied"), tmp_path / "held"
    shutil.copytree(versions.folder(0), folder)
    engine = loaded(folder)
    (folder / WEIGHTS_FILE).unlink()
    stays = results(engine, versions.config)
    with pytest.raises(OSError, match=WEIGHTS_FILE):
        engine.apply([versions.patch(0, 1)], versions.folder(1))
    assert results(engine, versions.config) == stays


def test_an_engine_at_work_or_without_weights_takes_no_patch(make_versions: MakeVersions) -> None:
    versions = make_versions("llama-tied")
    engine = TorchEngine(4)
    with pytest.raises(ProofpoolError, match="no weights"):
        engine.apply([versions.patch(0, 1)], versions.folder(1))
    engine.load(versions.folder(0))
    engine.add(make_requests(versions.config))
    engine.step()
    with pytest.raises(ProofpoolError, match="has work"):
        engine.apply([versions.patch(0, 1)], versions.folder(1))
    engine.abort()
    engine.apply([versions.patch(0, 1)], versions.folder(1))
    check_same(engine, versions, 1, torch.float32)


def test_an_engine_that_was_written_half_generates_nothing(
    make_versions: MakeVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = make_versions("llama-tied")
    engine, put, written = loaded(versions.folder(0)), Place.put, list[Place]()

    def fail_after_some(place: Place, positions: Tensor, values: Tensor) -> None:
        if len(written) == 3:
            raise MemoryError
        written.append(place)
        put(place, positions, values)

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(Place, "put", fail_after_some)
        engine.apply([versions.patch(0, 1)], versions.folder(1))
    with pytest.raises(ProofpoolError, match="no weights"):
        engine.add(make_requests(versions.config))
    engine.load(versions.folder(1))
    check_same(engine, versions, 1, torch.float32)


def test_where_packed_weights_cannot_be_reached_the_version_is_to_be_loaded(
    make_versions: MakeVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = make_versions("qwen2")
    if not packed_linear.has_onednn(torch.float32):
        pytest.skip("nothing is packed without oneDNN")
    engine = loaded(versions.folder(0))
    with monkeypatch.context() as patched, pytest.raises(ProofpoolError, match="can't be written to"):
        patched.setattr(packed_linear, "_can_reach_packed", lambda: False)
        engine.apply([versions.patch(0, 1)], versions.folder(1))
    check_same(engine, versions, 0, torch.float32)


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from protocol.engines.places import Place
from protocol.engines.torch import TorchEngine

home, put, written = Path(sys.argv[1]), Place.put, []

def die_after_some(place, positions, values):
    if len(written) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    written.append(place)
    put(place, positions, values)

Place.put = die_after_some
engine = TorchEngine(4, torch.bfloat16)
engine.load(home / "v0")
engine.apply([home / "0-1.patch"], home / "v1")
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_between_two_writes_leaves_files_from_which_a_restart_loads(make_versions: MakeVersions) -> None:
    """A bf16 engine's memory is in part a private mapping of the file that it loaded."""
    versions = make_versions("llama-untied")
    files = {path: path.read_bytes() for path in versions.home.rglob("*") if path.is_file()}
    child = subprocess.run([sys.executable, "-c", KILLED, str(versions.home)], check=False)
    assert child.returncode == -signal.SIGKILL
    assert files == {path: path.read_bytes() for path in versions.home.rglob("*") if path.is_file()}
    check_same(loaded(versions.folder(1), torch.bfloat16), versions, 1, torch.bfloat16)
