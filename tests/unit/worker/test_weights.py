"""Following policy versions: only what the trainer signed and the chain names, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ShardCorrupt, SignatureInvalid, Unreachable, VerificationFailed
from protocol.wire import Signed, WeightsRelease
from worker.loop import Worker

MakeWorker = Callable[..., Worker]


def test_the_newest_version_is_fetched_whole(make_worker: MakeWorker, pool: Any, model_folder: Path) -> None:
    weights = make_worker(follow=False).weights
    assert weights.newest() is None
    weights.follow()
    assert weights.newest() == 0
    folder = weights.fetch(0)
    for file in model_folder.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()


def test_what_is_here_isnt_fetched_again(make_worker: MakeWorker, pool: Any) -> None:
    weights = make_worker().weights
    pool.requests.clear()
    weights.follow()
    weights.fetch(0)
    assert pool.requests == ["GET /v1/pool"]


def test_before_version_zero_there_is_nothing(make_worker: MakeWorker, pool: Any) -> None:
    pool.releases.clear()
    weights = make_worker().weights
    assert weights.newest() is None


def test_the_newest_ones_and_the_one_in_use_stay(make_worker: MakeWorker, pool: Any, model_folder: Path) -> None:
    weights = make_worker().weights
    for policy_version in (1, 2, 3):
        pool.publish(model_folder, policy_version)
        weights.follow()
    weights.prune(in_use=0)
    pool.requests.clear()
    for policy_version in (0, 2, 3):
        weights.fetch(policy_version)
    assert pool.requests == []
    weights.fetch(1)
    assert "GET /versions/1/manifest.json" in pool.requests


def test_a_release_that_the_trainer_didnt_sign_is_refused(make_worker: MakeWorker, pool: Any) -> None:
    weights = make_worker(follow=False).weights
    pool.releases[0] = Signed[WeightsRelease].by(pool.node, pool.releases[0].message, pool.domain)
    with pytest.raises(SignatureInvalid):
        weights.follow()
    assert weights.newest() is None


def test_a_release_that_the_chain_doesnt_name_is_refused(make_worker: MakeWorker, pool: Any) -> None:
    weights = make_worker(follow=False).weights
    pool.chain.versions[0] = replace(pool.chain.versions[0], manifest_hash="0x" + "77" * 32)
    with pytest.raises(VerificationFailed, match="isn't the one on chain"):
        weights.follow()
    assert weights.newest() is None


def test_a_corrupt_shard_is_never_used(make_worker: MakeWorker, pool: Any) -> None:
    weights = make_worker(follow=False).weights
    shard = pool.origin / "versions" / "0" / "shards" / "1"
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(ShardCorrupt):
        weights.follow()
    assert weights.newest() is None
    shard.write_bytes(good)
    weights.follow()
    assert weights.newest() == 0


def test_a_missing_version_is_unreachable(make_worker: MakeWorker, pool: Any) -> None:
    weights = make_worker(follow=False).weights
    (pool.origin / "versions" / "0" / "manifest.json").unlink()
    with pytest.raises(Unreachable):
        weights.follow()


def test_damaged_weights_of_an_earlier_process_are_never_used(make_worker: MakeWorker, pool: Any) -> None:
    file = make_worker().weights.fetch(0) / "model.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    restarted = make_worker(follow=False)
    assert (restarted.weights.fetch(0) / "model.safetensors").read_bytes() == good
    pool.requests.clear()
    restarted.weights.fetch(0)
    assert pool.requests == []


def step(model_folder: Path, later: Path) -> Path:
    """The same model with a few values changed."""
    shutil.copytree(model_folder, later)
    data = bytearray((later / "model.safetensors").read_bytes())
    for place in range(-200, 0, 20):
        data[place] ^= 1
    (later / "model.safetensors").write_bytes(data)
    return later


def test_a_version_that_is_here_becomes_the_next_one_by_patches(
    make_worker: MakeWorker, pool: Any, model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights = make_worker().weights
    later = step(model_folder, tmp_path / "later")
    pool.publish(later, 1, before=model_folder)
    pool.requests.clear()
    weights.follow()
    assert "GET /versions/1/patch/0" in pool.requests
    assert (weights.fetch(1) / "model.safetensors").read_bytes() == (later / "model.safetensors").read_bytes()
    (patch,) = weights.patches(0, 1)
    assert patch.is_file() and weights.patches(7, 1) == ()
    weights.prune(in_use=1)
    assert weights.patches(0, 1) == (patch,), "patches stay as long as the version that they made"


def test_without_the_base_the_version_comes_whole(
    make_worker: MakeWorker, pool: Any, model_folder: Path, tmp_path: Path
) -> None:
    later = step(model_folder, tmp_path / "later")
    pool.publish(later, 1, before=model_folder)
    weights = make_worker(follow=False).weights
    folder = weights.fetch(1)
    assert (folder / "model.safetensors").read_bytes() == (later / "model.safetensors").read_bytes()
    assert weights.patches(0, 1) == ()
