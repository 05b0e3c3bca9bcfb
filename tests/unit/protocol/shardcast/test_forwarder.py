"""Relays that fill a folder: as versions are written, after a restart, from upstreams that lie, and from each other."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.api import PoolInfo
from protocol.clock import SteadyClock
from protocol.errors import NotFound, ShardCorrupt, SignatureInvalid, Unreachable, VerificationFailed
from protocol.metrics import exposition
from protocol.shardcast.client import fetch
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.forwarder import Forwarder
from protocol.shardcast.holding import HOLDING_FILE, Holding, read_holding
from protocol.shardcast.line import weights_client
from protocol.shardcast.listing import LISTING_FILE, Listing, read_listing
from protocol.shardcast.manifest import Manifest
from protocol.shardcast.origin import publish
from protocol.shardcast.relay import RelayMetrics, health_of, run_relay
from protocol.shardcast.releases import CoordinatorReleases
from protocol.signing import Signer, SigningDomain, TypedMessage
from protocol.wire import ShardListing, Signed, WeightsRelease
from tests.unit.protocol.shardcast.chain_world import run_of
from tests.unit.protocol.shardcast.relay_world import files_of, published, relay, release_of, send

LOOPBACK = ("127.0.0.1", 0)


DOMAIN = SigningDomain(31337, "0x" + "aa" * 20, "0x" + "bb" * 32)
TRAINER = Signer(b"\x66" * 32)
SOMEBODY = Signer(b"\x42" * 32)


class Announced:
    """What the coordinator would say, and whose listings are believed."""

    release: WeightsRelease | None = None

    def newest(self) -> WeightsRelease | None:
        return self.release

    def check(self, listing: Signed[ShardListing]) -> ShardListing:
        return listing.check(TRAINER.address, DOMAIN)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with weights_client() as client:
        yield client


@pytest.fixture
def announced() -> Announced:
    return Announced()


def forwarder(root: Path, urls: list[str], announced: Announced, http: httpx.Client, num_kept: int = 5) -> Forwarder:
    return Forwarder(root, urls, announced, http, num_kept, SteadyClock())


def holding_in(root: Path, version: int) -> Holding:
    return read_holding((root / "versions" / str(version) / HOLDING_FILE).read_bytes(), version)


def shards_in(root: Path, version: int) -> dict[str, bytes]:
    folder = root / "versions" / str(version) / "shards"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def listing_of(manifest: Manifest, num_shards: int, signer: Signer = TRAINER, version: int | None = None) -> Listing:
    shards = dict(enumerate(manifest.shards[:num_shards]))
    version = manifest.policy_version if version is None else version
    return Listing.by(lambda message: signer.sign(message, DOMAIN), manifest.pool_id, version, shards)


def cut_off(tmp_path: Path, manifest: Manifest, num_shards: int, signer: Signer = TRAINER) -> None:
    """The origin as it was when so many shards of a version were written; the rest is moved to `late`."""
    folder = tmp_path / "origin" / "versions" / str(manifest.policy_version)
    late = tmp_path / "late"
    (late / "shards").mkdir(parents=True)
    for number in range(num_shards, len(manifest.shards)):
        (folder / "shards" / str(number)).rename(late / "shards" / str(number))
    (folder / "manifest.json").rename(late / "manifest.json")
    listing_of(manifest, num_shards, signer).write(folder)


def go_on(tmp_path: Path, manifest: Manifest) -> None:
    """The origin writes the rest."""
    folder = tmp_path / "origin" / "versions" / str(manifest.policy_version)
    for path in sorted((tmp_path / "late" / "shards").iterdir()):
        path.rename(folder / "shards" / path.name)
    (tmp_path / "late" / "manifest.json").rename(folder / "manifest.json")
    (folder / LISTING_FILE).unlink()


def test_shards_are_pulled_while_later_ones_are_written(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    first, second = published(tmp_path), published(tmp_path, version=1)
    cut_off(tmp_path, second, 7)
    root = tmp_path / "relay"
    with relay(tmp_path / "origin") as origin:
        pulling = forwarder(root, [origin.url], announced, http)
        announced.release = release_of(first)
        assert pulling.look() and pulling.policy_version == 0
        origin.requests.clear()
        assert pulling.look() and not pulling.look(), "what is there, and then there is nothing new"
        assert sorted(map(int, origin.shards)) == list(range(7))
        assert shards_in(root, 1) == shards_in(tmp_path / "origin", 1)
        handed_on = read_listing((root / "versions/1" / LISTING_FILE).read_bytes(), 1, announced.check)
        assert handed_on.shards == dict(enumerate(second.shards[:7])), "a relay of this one pulls them as well"
        assert holding_in(root, 1).shards == tuple(range(7)) and holding_in(root, 1).completed_time is None
        go_on(tmp_path, second)
        announced.release = release_of(second)
        origin.requests.clear()
        assert pulling.look() and pulling.policy_version == 1
    assert sorted(map(int, origin.shards)) == list(range(7, len(second.shards)))
    assert shards_in(root, 1) == shards_in(tmp_path / "origin", 1)
    assert not (root / "versions/1" / LISTING_FILE).exists()
    assert holding_in(root, 1).shards == tuple(range(len(second.shards))) and holding_in(root, 1).completed_time


def test_the_first_version_is_pulled_before_it_is_released(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    cut_off(tmp_path, published(tmp_path), 3)
    with relay(tmp_path / "origin") as origin:
        forwarder(tmp_path / "relay", [origin.url], announced, http).look()
    assert len(shards_in(tmp_path / "relay", 0)) == 3


def test_a_listing_that_the_trainer_did_not_sign_is_not_believed(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    first, second = published(tmp_path), published(tmp_path, version=1)
    cut_off(tmp_path, second, 5, SOMEBODY)
    file = tmp_path / "origin/versions/1" / LISTING_FILE
    announced.release = release_of(first)
    root = tmp_path / "relay"
    with relay(tmp_path / "origin") as origin:
        pulling = forwarder(root, [origin.url], announced, http)
        assert pulling.look() and not pulling.look()
        other = listing_of(second, 5).model_dump() | {"shards": listing_of(second, 6).shards}
        file.write_text(Listing.model_validate(other).model_dump_json())
        assert not pulling.look(), "another's shards under the trainer's signature"
        file.write_text('{"schema_version":2,"pool_id":1,"policy_version":1,"shards":{}}')
        assert not pulling.look(), "no signature"
        file.write_bytes(listing_of(first, 5).model_dump_json().encode())
        assert not pulling.look(), "the listing of an earlier version"
        assert shards_in(root, 1) == {} and not (root / "versions/1" / LISTING_FILE).exists()
        listing_of(second, 5).write(file.parent)
        assert pulling.look()
    assert len(shards_in(root, 1)) == 5


def test_an_earlier_listing_that_is_replayed_changes_nothing(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    first, second = published(tmp_path), published(tmp_path, version=1)
    cut_off(tmp_path, second, 7)
    announced.release = release_of(first)
    root = tmp_path / "relay"
    with relay(tmp_path / "origin") as origin:
        pulling = forwarder(root, [origin.url], announced, http)
        assert pulling.look() and pulling.look()
        listing_of(second, 3).write(tmp_path / "origin/versions/1")
        assert not pulling.look()
        handed_on = read_listing((root / "versions/1" / LISTING_FILE).read_bytes(), 1, announced.check)
    assert len(handed_on.shards) == 7 and len(shards_in(root, 1)) == 7


def test_a_listing_goes_on_from_one_that_it_has_all_of(tmp_path: Path) -> None:
    manifest = published(tmp_path)
    seven, eight = listing_of(manifest, 7), listing_of(manifest, 8)
    assert eight.goes_on_from(seven) and not seven.goes_on_from(eight) and not seven.goes_on_from(seven)
    others = {number: shard for number, shard in eight.shards.items() if number != 3} | {9: manifest.shards[9]}
    assert not eight.model_copy(update={"shards": others}).goes_on_from(seven)


def test_the_origin_lists_shards_while_it_writes_where_somebody_signs(tmp_path: Path) -> None:
    published(tmp_path)
    seen: list[ShardListing] = []

    def sign(message: TypedMessage) -> str:
        if isinstance(message, ShardListing):
            seen.append(message)
        return TRAINER.sign(message, DOMAIN)

    root = tmp_path / "signed"
    manifest = publish(tmp_path / "checkpoint", root, 1, 0, 1000, sign)
    assert [one.num_shards for one in seen] == list(range(1, len(manifest.shards) + 1))
    assert seen[-1] == listing_of(manifest, len(manifest.shards)).signed.message
    assert not (root / "versions/0" / LISTING_FILE).exists(), "the manifest is in its place"


def test_what_was_pulled_ahead_and_is_in_no_manifest_is_removed(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    first, second = published(tmp_path), published(tmp_path, version=1)
    other = tmp_path / "other"
    other.mkdir()
    lie = published(other, num_bytes=30_000, shard_bytes=500, version=1)
    cut_off(other, lie, 50)
    root = tmp_path / "relay"
    announced.release = release_of(first)
    with relay(tmp_path / "origin") as origin, relay(other / "origin") as liar:
        forwarder(root, [origin.url], announced, http).look()
        pulling = forwarder(root, [liar.url, origin.url], announced, http)
        pulling.look()
        pulling.look()
        assert len(shards_in(root, 1)) == 50
        announced.release = release_of(second)
        pulling.look()
    assert shards_in(root, 1) == shards_in(tmp_path / "origin", 1)


def test_a_manifest_that_the_trainer_did_not_sign_is_not_handed_on(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    signed = published(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    published(other, num_bytes=100)
    announced.release = release_of(signed)
    root = tmp_path / "relay"
    with relay(other / "origin") as liar, relay(tmp_path / "origin") as origin:
        pulling = forwarder(root, [liar.url], announced, http)
        with pytest.raises(ShardCorrupt):
            pulling.look()
        assert not (root / "versions/0/manifest.json").exists() and shards_in(root, 0) == {}
        assert [lie.expected for lie in pulling.relays.lies][:1] == [signed.manifest_hash]
        forwarder(root, [liar.url, origin.url], announced, http).look()
    assert shards_in(root, 0) == shards_in(tmp_path / "origin", 0)


def test_a_flipped_bit_of_an_upstream_is_not_handed_on(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    announced.release = release_of(published(tmp_path))

    def flips(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        send(handler, bytes([data[0] ^ 1]) + data[1:])

    with relay(tmp_path / "origin", flips) as liar, relay(tmp_path / "origin") as origin:
        with pytest.raises(ShardCorrupt):
            forwarder(tmp_path / "one", [liar.url], announced, http).look()
        assert shards_in(tmp_path / "one", 0) == {}
        forwarder(tmp_path / "two", [liar.url, origin.url], announced, http).look()
    assert shards_in(tmp_path / "two", 0) == shards_in(tmp_path / "origin", 0)


@pytest.mark.parametrize("damaged", [None, "3"])
def test_after_a_restart_only_what_is_missing_or_damaged_is_fetched(
    tmp_path: Path, announced: Announced, http: httpx.Client, damaged: str | None
) -> None:
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    root = tmp_path / "relay"
    with relay(tmp_path / "origin") as origin:
        forwarder(root, [origin.url], announced, http).look()
        origin.requests.clear()
        if damaged:
            path = root / "versions/0/shards" / damaged
            path.write_bytes(path.read_bytes()[:-1] + b"\0")
            (root / "versions/0/shards/.9.part").write_bytes(b"of a process that was killed")
        again = forwarder(root, [origin.url], announced, http)
        assert again.look() and again.policy_version == 0
    assert [path for path, _ in origin.requests] == ([f"/versions/0/shards/{damaged}"] if damaged else [])
    assert shards_in(root, 0) == shards_in(tmp_path / "origin", 0)


def test_relays_chain_and_the_newest_versions_are_kept(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    with relay(tmp_path / "origin") as origin, FileServer(near, LOOPBACK) as server:
        one = forwarder(near, [origin.url], announced, http, num_kept=2)
        two = forwarder(far, [server.url], announced, http, num_kept=2)
        for version in range(4):
            announced.release = release_of(published(tmp_path, num_bytes=3000 + version, version=version))
            assert one.look() and two.look()
    assert shards_in(far, 3) == shards_in(tmp_path / "origin", 3)
    assert sorted(path.name for path in (far / "versions").iterdir()) == ["2", "3"]


def test_a_client_starts_while_the_relay_is_still_filled(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    seen, let_go = threading.Event(), threading.Event()

    def holds_the_last_back(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        if handler.path.endswith(f"/{len(manifest.shards) - 1}"):
            assert let_go.wait(60)
        send(handler, data)

    root, stop = tmp_path / "relay", threading.Event()

    def tell(done: int, total: int) -> None:
        if done >= total - manifest.shards[-1].num_bytes:
            let_go.set()

    with relay(tmp_path / "origin", holds_the_last_back) as origin, FileServer(root, LOOPBACK) as server:
        pulling = forwarder(root, [origin.url], announced, http)
        thread = threading.Thread(target=pulling.run, args=(stop,))
        thread.start()
        while not (root / "versions/0/manifest.json").exists():
            seen.wait(0.01)
        fetched = fetch(http, [server.url], release_of(manifest), tmp_path / "got", tell, wait_seconds=60.0)
        stop.set()
        thread.join()
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")


def test_what_stands_in_the_way_is_in_the_health_and_what_was_done_in_the_metrics(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    root, stop = tmp_path / "relay", threading.Event()
    with relay(tmp_path / "origin") as origin:
        pulling = forwarder(root, [origin.url], announced, http)
        server = FileServer(root, LOOPBACK)
        thread = threading.Thread(target=run_relay, args=(server, pulling, stop, "127.0.0.1:0"))
        thread.start()
        while pulling.policy_version is None:
            stop.wait(0.01)
        assert httpx.get(f"{server.url}/versions/0/manifest.json").content == manifest.to_bytes()
        said = exposition(RelayMetrics(server, pulling)).decode()
        stop.set()
        thread.join()
    assert f'proofpool_relay_bytes_total{{direction="in"}} {float(manifest.num_bytes)}' in said
    assert "proofpool_relay_policy_version 0.0" in said and "proofpool_relay_requests_total 1.0" in said
    assert (health_of(pulling).status, health_of(pulling).http_status) == ("ok", 200)
    shutil.rmtree(root)
    nobody = forwarder(root, ["http://127.0.0.1:9"], announced, http)
    with pytest.raises(Unreachable):
        nobody.look()
    assert not nobody._looked()
    assert health_of(nobody).http_status == 503 and "hands out" in health_of(nobody).why


def test_a_full_disk_is_said_and_what_is_here_is_served_until_there_is_room(
    tmp_path: Path, announced: Announced, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = published(tmp_path), published(tmp_path, version=1)
    announced.release = release_of(first)
    root, is_full = tmp_path / "relay", threading.Event()

    def pwrite(descriptor: int, data: memoryview, at: int) -> int:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(descriptor, data, at)

    written = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    with relay(tmp_path / "origin") as origin, FileServer(root, LOOPBACK) as server:
        pulling = forwarder(root, [origin.url], announced, http)
        assert pulling._looked()
        is_full.set()
        announced.release = release_of(second)
        assert not pulling._looked()
        assert "no room left" in health_of(pulling).why and "--keep" in health_of(pulling).why
        assert http.get(f"{server.url}/versions/0/shards/1").status_code == 200, "version 0 is served"
        assert not list((root / "versions/1/shards").iterdir()), "no half shard stays"
        is_full.clear()
        assert pulling._looked() and health_of(pulling).status == "ok"
    assert shards_in(root, 1) == shards_in(tmp_path / "origin", 1)


class Coordinator:
    """Whatever a coordinator says of a pool and its newest release, once that is announced."""

    def __init__(self, pool: Any, release: Signed[WeightsRelease], announced: int = 0) -> None:
        self._pool, self._release, self._announced = pool, release, announced

    def pool(self) -> PoolInfo:
        found: PoolInfo = self._pool
        return found

    def weights(self, policy_version: int) -> Any:
        if policy_version > self._announced:
            raise NotFound("this policy version isn't announced yet", "", "")
        return type("View", (), {"release": self._release})()


def _pool(domain: SigningDomain, trainer: str) -> Any:
    contracts = type("Contracts", (), {"ledger": domain.contract})()
    says = {"pool_id": 1, "policy_version": 0, "trainer": trainer, "chain_id": domain.chain_id}
    return type("Pool", (), says | {"contracts": contracts, "deployment_salt": domain.salt})()


def test_a_release_is_the_trainers_or_none(tmp_path: Path, domain: SigningDomain, make_signer: Any) -> None:
    trainer: Signer = make_signer(102)
    other: Signer = make_signer(66)
    release = release_of(published(tmp_path))
    signed = Signed[WeightsRelease].by(trainer, release, domain)
    coordinator: Any = Coordinator(_pool(domain, trainer.address), signed)
    assert CoordinatorReleases(coordinator).newest() == release
    forged: Any = Coordinator(_pool(domain, trainer.address), Signed[WeightsRelease].by(other, release, domain))
    with pytest.raises(SignatureInvalid):
        CoordinatorReleases(forged).newest()
    turned: Any = Coordinator(_pool(domain, other.address), Signed[WeightsRelease].by(other, release, domain))
    with pytest.raises(SignatureInvalid):
        CoordinatorReleases(turned, trainer.address).newest()
    served_for_another: Any = Coordinator(_pool(domain, trainer.address), signed, announced=3)
    with pytest.raises(VerificationFailed, match="another release"):
        CoordinatorReleases(served_for_another).of(3)


def test_a_release_counts_as_soon_as_it_is_announced(tmp_path: Path, domain: SigningDomain, make_signer: Any) -> None:
    trainer: Signer = make_signer(102)
    release = release_of(published(tmp_path))
    signed = Signed[WeightsRelease].by(trainer, release, domain)
    pool = _pool(domain, trainer.address)
    pool.policy_version = None
    unsealed: Any = Coordinator(pool, signed)
    assert CoordinatorReleases(unsealed).newest() == release
    before: Any = Coordinator(pool, signed, announced=-1)
    assert CoordinatorReleases(before).newest() is None


def test_a_listing_is_the_trainers_and_of_the_pool_or_none(
    tmp_path: Path, domain: SigningDomain, make_signer: Any
) -> None:
    trainer: Signer = make_signer(102)
    manifest = published(tmp_path)
    coordinator: Any = Coordinator(
        _pool(domain, trainer.address), Signed[WeightsRelease].by(trainer, release_of(manifest), domain)
    )
    releases, shards = CoordinatorReleases(coordinator), {0: manifest.shards[0]}

    def by(signer: Signer, pool_id: int) -> Signed[ShardListing]:
        return Listing.by(lambda message: signer.sign(message, domain), pool_id, 1, shards).signed

    assert releases.check(by(trainer, 1)).num_shards == 1
    with pytest.raises(SignatureInvalid):
        releases.check(by(make_signer(66), 1))
    with pytest.raises(VerificationFailed, match="another pool"):
        releases.check(by(trainer, 2))


@pytest.mark.parametrize("data", [b"{}", b"[" * 10_000, b'{"policy_version": 2, "shards": []}'])
def test_what_is_no_listing_or_holding_of_the_version_is_refused(data: bytes, announced: Announced) -> None:
    with pytest.raises(ShardCorrupt, match="listing"):
        read_listing(data, 1, announced.check)
    with pytest.raises(ShardCorrupt, match="holding"):
        read_holding(data, 1)


def test_relays_hand_on_patches_and_what_leads_to_them_and_keep_it(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    run, root = run_of(tmp_path, 7, snapshot_every=4), tmp_path / "relay"
    with relay(run.origin) as origin, relay(root) as served:
        puller = forwarder(root, [origin.url], announced, http, num_kept=1)
        for version in (2, 6):
            announced.release = release_of(run.manifests[version])
            assert puller.look()
        kept = sorted(path.name for path in (root / "versions").iterdir())
        assert kept == ["4", "5", "6"], "the newest one, and what leads to it from its snapshot"
        newcomer = fetch(http, [served.url], release_of(run.manifests[6]), tmp_path / "newcomer")
        assert (newcomer.way, newcomer.base_version) == ("snapshot", 4)
        follower = fetch(http, [origin.url], release_of(run.manifests[5]), tmp_path / "follower")
        follower = fetch(http, [served.url], release_of(run.manifests[6]), tmp_path / "follower")
        assert (follower.way, follower.base_version) == ("patches", 5)
    for fetched in (newcomer, follower):
        assert files_of(fetched.folder) == files_of(run.checkpoint(6))


def test_a_relay_hands_on_no_patch_that_its_upstream_has_changed(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    run, root = run_of(tmp_path, 2), tmp_path / "relay"
    patch = run.origin / "versions" / "1" / "patch" / "0"
    patch.write_bytes(patch.read_bytes()[:-1] + b"!")
    announced.release = release_of(run.manifests[1])
    with relay(run.origin) as origin, pytest.raises(ShardCorrupt, match="versions/1/patch/0"):
        forwarder(root, [origin.url], announced, http).look()
    assert not (root / "versions" / "1" / "patch" / "0").exists()


def test_a_restart_beside_the_next_version_keeps_the_one_before(
    tmp_path: Path, announced: Announced, http: httpx.Client
) -> None:
    manifest, root = published(tmp_path), tmp_path / "relay"
    announced.release = release_of(manifest)
    with relay(tmp_path / "origin") as origin:
        assert forwarder(root, [origin.url], announced, http, num_kept=1).look()
        (root / "versions/1/shards").mkdir(parents=True)
        again = forwarder(root, [origin.url], announced, http, num_kept=1)
        assert again.look() and again.policy_version == 0
    assert sorted(path.name for path in (root / "versions").iterdir()) == ["0", "1"]
    assert len(shards_in(root, 0)) == len(manifest.shards)


def test_an_older_release_is_not_gone_back_to(tmp_path: Path, announced: Announced, http: httpx.Client) -> None:
    """A coordinator may serve one again: its versions would be fetched and dropped with each turn."""
    run, root = run_of(tmp_path, 4), tmp_path / "relay"
    with relay(run.origin) as origin:
        puller = forwarder(root, [origin.url], announced, http, num_kept=1)
        for version, is_new in ((2, True), (0, False), (2, False), (3, True)):
            announced.release = release_of(run.manifests[version])
            num_before = len(origin.shards)
            assert puller.look() == is_new == (len(origin.shards) > num_before)
            assert puller.policy_version == max(version, 2)
    assert [path.name for path in (root / "versions").iterdir()] == ["3"]
