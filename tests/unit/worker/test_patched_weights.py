"""A newer version in the engine: by the patches that it was fetched by, where they lead on from what the engine has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

import worker.loop
from protocol.engines.torch import TorchEngine
from protocol.errors import MalformedFile, ProofpoolError, VerificationFailed
from protocol.shardcast.folder import patches_of
from protocol.tokenizer import TOKENIZER_FILE
from protocol.weights import ModelConfig, load_weights
from tests.unit.worker.test_ahead import versions as versions_of
from tests.worlds.versions import Versions
from worker.loop import Worker

MakeWorker = Callable[..., Worker]
NUM_VERSIONS = 4


class Watched(TorchEngine):
    """An engine that remembers how it got its weights; `refusals` are raised first, one a call of `apply`."""

    def __init__(self, refusals: Sequence[Exception] = ()) -> None:
        super().__init__()
        self.taken: list[object] = []
        self._refusals = list(refusals)

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.taken.append(folder.name)

    def apply(self, patches: Sequence[Path], folder: Path) -> None:
        if self._refusals:
            raise self._refusals.pop(0)
        super().apply(patches, folder)
        self.taken.append((len(patches), folder.name))


@pytest.fixture(scope="module")
def versions(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    config, home = ModelConfig.load(model_folder), tmp_path_factory.mktemp("versions")
    weights = {name: tensor.bfloat16() for name, tensor in load_weights(model_folder).items()}
    return Versions(home, config, weights, NUM_VERSIONS, companions=[model_folder / TOKENIZER_FILE])


@pytest.fixture
def model_of_pool(pool: Any, versions: Versions) -> Any:
    """The pool, whose version 0 is the first of `versions`."""
    pool.origin.joinpath("versions").rename(pool.origin / "before")
    pool.publish(versions.folder(0), 0)
    return pool


@pytest.fixture
def step(model_of_pool: Any, versions: Versions) -> Callable[..., None]:
    """Publishes a version, with a patch unless told otherwise."""

    def publish(number: int, with_patch: bool = True) -> None:
        model_of_pool.publish(versions.folder(number), number, versions.folder(number - 1) if with_patch else None)

    return publish


def weights_of(engine: TorchEngine) -> torch.Tensor:
    assert engine._batch is not None
    places = engine._batch._decoder.places()
    return torch.cat([place.memory.float() for name in sorted(places) for place in places[name]])


def check_has(worker: Worker, versions: Versions, number: int) -> None:
    other = TorchEngine()
    other.load(versions.folder(number))
    assert isinstance(worker.engine, TorchEngine)
    assert torch.equal(weights_of(worker.engine), weights_of(other))


def test_the_next_version_is_patched_in(make_worker: MakeWorker, step: Callable[..., None], versions: Versions) -> None:
    worker = make_worker(engine=(engine := Watched()))
    worker.load_weights(0)
    step(1)
    worker.weights.follow()
    with capture_logs() as log:
        worker.load_weights(1)
        worker.load_weights(1)
    assert engine.taken == ["v0", (1, "v1")]
    assert [(line["event"], line["way"], line["num_patches"]) for line in log] == [("weights.loaded", "patches", 1)]
    check_has(worker, versions, 1)


def test_patches_of_versions_between_are_a_chain(
    make_worker: MakeWorker, step: Callable[..., None], versions: Versions
) -> None:
    """Also past a version that isn't on disk any more; a version that no patch leads to is loaded."""
    worker = make_worker(engine=(engine := Watched()))
    worker.load_weights(0)
    for number in range(1, NUM_VERSIONS):
        step(number)
        worker.weights.follow()
        worker.weights.prune(in_use=0)
    assert not (worker.folder.weights / "v1").exists()
    assert [len(patches_of(worker.folder.weights, number)) for number in range(NUM_VERSIONS)] == [0, 1, 1, 1]
    worker.load_weights(3)
    check_has(worker, versions, 3)
    worker.load_weights(0)
    assert engine.taken == ["v0", (3, "v3"), "v0"]
    check_has(worker, versions, 0)


def test_a_longer_chain_than_pays_off_is_loaded(
    make_worker: MakeWorker, step: Callable[..., None], versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.loop, "MOST_PATCHES", 2)
    here = make_worker(engine=(engine := Watched()))
    here.load_weights(0)
    for number in range(1, NUM_VERSIONS):
        step(number)
        here.weights.follow()
    here.load_weights(3)
    assert engine.taken == ["v0", "v3"]
    check_has(here, versions, 3)


@pytest.mark.parametrize("gap", [1, 2])
def test_a_version_that_came_whole_is_loaded(
    make_worker: MakeWorker, step: Callable[..., None], versions: Versions, gap: int
) -> None:
    worker = make_worker(engine=(engine := Watched()))
    worker.load_weights(0)
    for number in (1, 2):
        step(number, with_patch=number != gap)
        worker.weights.follow()
    worker.load_weights(2)
    assert engine.taken == ["v0", "v2"]
    check_has(worker, versions, 2)
    step(3)
    worker.weights.follow()
    worker.load_weights(3)
    assert engine.taken == ["v0", "v2", (1, "v3")]
    check_has(worker, versions, 3)


def test_after_a_restart_the_version_is_loaded(
    make_worker: MakeWorker, step: Callable[..., None], versions: Versions
) -> None:
    make_worker().load_weights(0)
    step(1)
    again = make_worker(engine=(engine := Watched()))
    again.load_weights(1)
    assert engine.taken == ["v1"]
    check_has(again, versions, 1)


@pytest.mark.parametrize(
    "refusal",
    [
        VerificationFailed("the base isn't version 0's file"),
        MalformedFile("a patch can't be read"),
        FileNotFoundError("gone"),
        ProofpoolError("packed weights can't be written to"),
    ],
)
def test_what_the_engine_refuses_is_loaded(
    make_worker: MakeWorker, step: Callable[..., None], versions: Versions, refusal: Exception
) -> None:
    worker = make_worker(engine=(engine := Watched([refusal])))
    worker.load_weights(0)
    step(1)
    worker.weights.follow()
    with capture_logs() as log:
        worker.load_weights(1)
    assert engine.taken == ["v0", "v1"]
    assert [(line["event"], line.get("way")) for line in log] == [
        ("weights.not_patched", None),
        ("weights.loaded", "load"),
    ]
    check_has(worker, versions, 1)


def test_a_patch_that_the_disk_damaged_is_not_needed(
    make_worker: MakeWorker, step: Callable[..., None], versions: Versions
) -> None:
    worker = make_worker(engine=(engine := Watched()))
    worker.load_weights(0)
    step(1)
    worker.weights.follow()
    (patch,) = patches_of(worker.folder.weights, 1)
    patch.write_bytes(patch.read_bytes()[:20])
    worker.load_weights(1)
    assert engine.taken == ["v0", "v1"]
    check_has(worker, versions, 1)


def test_work_goes_on_with_what_was_patched(make_worker: MakeWorker, step: Callable[..., None], pool: Any) -> None:
    """The self-check judges the first file of the version by the weights on disk."""
    worker = make_worker(engine=(engine := Watched()))
    worker.turn()
    step(1)
    worker.weights.follow()
    worker.turn()
    assert engine.taken == ["v0", (1, "v1")]
    assert versions_of(pool) == [0, 1]
