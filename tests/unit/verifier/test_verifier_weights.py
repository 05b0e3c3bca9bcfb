"""Weights: from any mirror, and only those that the trainer signed and the chain names."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.chain.pool import VersionRecord
from protocol.errors import SignatureInvalid, Unreachable, VerificationFailed
from protocol.shardcast.origin import publish
from protocol.signing import Signer, SigningDomain
from protocol.wire import Signed, WeightsRelease
from tests.unit.verifier.verifier_world import BASE_MODEL
from verifier.weights import Weights


class Origin:
    """A trainer's folder behind a web server, and the coordinator that points at it."""

    def __init__(self, root: Path, chain: Any, trainer: Signer, domain: SigningDomain) -> None:
        self.root = root
        self.checkpoint = root.parent / "checkpoint"
        self.checkpoint.mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            shutil.copy(BASE_MODEL / name, self.checkpoint)
        self.chain = chain
        self.trainer = trainer
        self.domain = domain
        self.requests = 0

    def release(self, policy_version: int, signer: Signer | None = None) -> str:
        manifest = publish(self.checkpoint, self.root, 1, policy_version)
        self.chain.versions[policy_version] = VersionRecord(policy_version, manifest.manifest_hash, 9, None)
        message = WeightsRelease(pool_id=1, policy_version=policy_version, manifest_hash=manifest.manifest_hash)
        self.signed = Signed[WeightsRelease].by(signer or self.trainer, message, self.domain)
        return manifest.manifest_hash

    def weights(self, policy_version: int) -> Any:
        return type("View", (), {"release": self.signed})()

    def pool(self) -> Any:
        return type("Pool", (), {"shardcast_urls": ("http://origin",)})()

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        file = self.root / request.url.path.lstrip("/")
        return httpx.Response(200, content=file.read_bytes()) if file.is_file() else httpx.Response(404)


@pytest.fixture
def origin(tmp_path: Path, chain: Any, make_signer: Callable[[int], Signer], domain: SigningDomain) -> Origin:
    return Origin(tmp_path / "origin", chain, make_signer(102), domain)


@pytest.fixture
def weights(tmp_path: Path, chain: Any, origin: Origin) -> Iterator[Weights]:
    client: Any = origin
    with httpx.Client(transport=httpx.MockTransport(origin.answer)) as http:
        yield Weights(tmp_path / "weights", chain, client, http, num_kept=2)


def test_a_released_version_is_fetched_once(origin: Origin, weights: Weights) -> None:
    origin.release(0)
    folder = weights.fetch(0)
    assert (folder / "model.safetensors").read_bytes() == (BASE_MODEL / "model.safetensors").read_bytes()
    asked = origin.requests
    assert weights.fetch(0) == folder and origin.requests == asked
    assert weights.model(0) is weights.model(0)


def test_a_manifest_that_the_chain_does_not_name_is_refused(origin: Origin, weights: Weights) -> None:
    origin.release(0)
    origin.chain.versions[0] = VersionRecord(0, "0x" + "00" * 32, 9, None)
    with pytest.raises(VerificationFailed, match="isn't the one on chain"):
        weights.fetch(0)


def test_a_release_by_somebody_else_is_refused(
    origin: Origin, weights: Weights, make_signer: Callable[[int], Signer]
) -> None:
    origin.release(0, signer=make_signer(66))
    with pytest.raises(SignatureInvalid):
        weights.fetch(0)


def test_missing_shards_are_no_verdict(origin: Origin, weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.weights.WAIT_SECONDS", 0.0)
    origin.release(0)
    for shard in origin.root.rglob("shards/*"):
        shard.unlink()
    with pytest.raises(Unreachable):
        weights.fetch(0)


def test_the_oldest_versions_make_room(origin: Origin, weights: Weights) -> None:
    folders = []
    for version in range(4):
        origin.release(version)
        folders.append(weights.fetch(version))
    assert [folder.exists() for folder in folders] == [False, False, True, True]


def test_damaged_weights_of_an_earlier_process_judge_nobody(origin: Origin, weights: Weights, tmp_path: Path) -> None:
    origin.release(0)
    file = weights.fetch(0) / "model.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    chain: Any = origin.chain
    client: Any = origin
    with httpx.Client(transport=httpx.MockTransport(origin.answer)) as http:
        restarted = Weights(tmp_path / "weights", chain, client, http, num_kept=2)
        assert (restarted.fetch(0) / "model.safetensors").read_bytes() == good
