"""Relays as processes: killed in the midst of a version and started again, on a full disk, three of them together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.api import PoolInfo, WeightsView
from protocol.shardcast.holding import HOLDING_FILE
from protocol.shardcast.manifest import Manifest
from protocol.signing import Signer, SigningDomain
from protocol.wire import Signed, WeightsRelease
from testnet.ports import Ports
from tests.fuzz.example import ADDRESS, HASH, example
from tests.unit.protocol.shardcast.relay_world import published, relay, release_of, send

pytestmark = pytest.mark.slow
TRAINER = Signer(b"\x66" * 32)
DOMAIN = SigningDomain(31337, ADDRESS, HASH)
ROOT = Path(__file__).resolve().parents[2]


class Coordinator:
    """Says what a pool's coordinator says of a release, once there is one."""

    urls: tuple[str, ...] = ()
    """The pool's relays."""

    def __init__(self) -> None:
        self.manifest: Manifest | None = None

    def answer(self, path: str) -> tuple[int, bytes]:
        version = None if self.manifest is None else self.manifest.policy_version
        if path == "/v1/pool":
            return 200, self._pool(version)
        if self.manifest is not None and path == f"/v1/weights/{version}":
            signed = Signed[WeightsRelease].by(TRAINER, release_of(self.manifest), DOMAIN)
            return 200, WeightsView(
                release=signed, beacon_block=1, beacon_hash=HASH, published_time=1
            ).model_dump_json().encode()
        return 404, b'{"type": "about:blank", "title": "not yet", "status": 404, "code": "not_found"}'

    def _pool(self, version: int | None) -> bytes:
        pool: dict[str, Any] = json.loads(example(PoolInfo))
        pool |= {"pool_id": 1, "chain_id": 31337, "trainer": TRAINER.address, "policy_version": version}
        return json.dumps(pool | {"schema_version": 1, "shardcast_urls": self.urls}).encode()


@pytest.fixture
def coordinator() -> Iterator[tuple[str, Coordinator]]:
    says = Coordinator()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = says.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", says
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def process(root: Path, coordinator: str, upstream: str, port: int = 0, *more: str) -> Iterator[subprocess.Popen[str]]:
    """`proofpool shardcast relay`, ended with the block unless it has ended before."""
    command = [sys.executable, "-m", "protocol.cli", "shardcast", "relay", str(root), "--upstream", upstream]
    command += ["--coordinator", coordinator, "--port", str(port), *more]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGTERM)


def wait_until(condition: Any, *children: subprocess.Popen[str]) -> None:
    while not condition():
        assert all(child.poll() is None for child in children), "a relay has ended"
        threading.Event().wait(0.05)


def holding(root: Path, version: int = 0) -> dict[str, Any]:
    """Empty before the first."""
    file = root / "versions" / str(version) / HOLDING_FILE
    return dict(json.loads(file.read_text())) if file.exists() else {}


def is_whole(root: Path, version: int = 0) -> bool:
    return bool(holding(root, version).get("completed_time"))


def shards(root: Path, version: int = 0) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "versions" / str(version) / "shards").iterdir()}


def test_a_relay_that_was_killed_keeps_what_it_had(tmp_path: Path, coordinator: tuple[str, Coordinator]) -> None:
    url, says = coordinator
    says.manifest = published(tmp_path)
    root, let_go = tmp_path / "relay", threading.Event()

    def stops_at_20(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        if int(handler.path.rpartition("/")[2]) >= 20:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:100])
            handler.wfile.flush()
            assert let_go.wait(120)
            handler.close_connection = True
            return
        send(handler, data)

    with relay(tmp_path / "origin", stops_at_20) as origin, process(root, url, origin.url) as child:
        wait_until(lambda: len(holding(root).get("shards", ())) >= 20, child)
        child.kill()
        child.wait()
        let_go.set()
    torn, part = root / "versions/0/shards/3", root / "versions/0/shards/.25.part"
    torn.write_bytes(torn.read_bytes()[:-1])
    part.write_bytes(b"half a shard")
    with relay(tmp_path / "origin") as origin, process(root, url, origin.url) as child:
        wait_until(lambda: is_whole(root), child)
    assert {number for number in map(int, origin.shards) if number < 20} == {3}
    assert len(origin.shards) == len(says.manifest.shards) - 19, "none twice"
    assert shards(root) == shards(tmp_path / "origin")


def test_three_relays_end_with_the_right_bytes_though_one_is_killed(
    tmp_path: Path, coordinator: tuple[str, Coordinator]
) -> None:
    url, says = coordinator
    manifest = published(tmp_path, num_bytes=300_000)
    with Ports(3) as found:
        ports = found.numbers
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    says.urls = tuple(urls)  # one of them is named no peers, and takes these
    roots = [tmp_path / f"relay{number}" for number in range(3)]
    with ExitStack() as stack:
        origin = stack.enter_context(relay(tmp_path / "origin"))
        children = []
        for root, own, port in zip(roots, urls, ports, strict=True):
            peers = [word for peer in urls if peer != own for word in ("--peer", peer)] if own != urls[2] else []
            children.append(stack.enter_context(process(root, url, origin.url, port, "--url", own, *peers)))
        for own in urls:
            wait_until(lambda own=own: _is_up(own), *children)
        says.manifest = manifest
        wait_until(lambda: len(holding(roots[0]).get("shards", ())) > 0, *children)
        children[0].kill()
        wait_until(lambda: is_whole(roots[1]) and is_whole(roots[2]), *children[1:])
        for root in roots[1:]:
            assert shards(root) == shards(tmp_path / "origin")
        peers = [word for peer in urls[1:] for word in ("--peer", peer)]
        asked = len(origin.shards)
        again = stack.enter_context(process(roots[0], url, origin.url, ports[0], "--url", urls[0], *peers))
        wait_until(lambda: is_whole(roots[0]), again)
    assert shards(roots[0]) == shards(tmp_path / "origin")
    assert len(origin.shards) == asked, "the others have what it lacks"


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.ConnectError:
        return False


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """2 MB, where this machine lets us have one."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_relay_on_a_full_disk_goes_on_once_there_is_room(
    tmp_path: Path, small_disk: Path, coordinator: tuple[str, Coordinator]
) -> None:
    url, says = coordinator
    says.manifest = published(tmp_path, num_bytes=500_000, shard_bytes=50_000)
    second = published(tmp_path, num_bytes=500_001, shard_bytes=50_000, version=1)
    root, ballast = small_disk / "relay", small_disk / "ballast"
    with Ports(2) as ports:
        port, metrics = ports.numbers
    own, health = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}/healthz"
    more = ("--metrics-address", f"127.0.0.1:{metrics}")
    with relay(tmp_path / "origin") as origin, process(root, url, origin.url, port, *more) as child:
        wait_until(lambda: is_whole(root), child)
        ballast.write_bytes(bytes(1_300_000))
        says.manifest = second
        wait_until(lambda: httpx.get(health).status_code == 503, child)
        assert "no room left" in httpx.get(health).json()["why"]
        assert httpx.get(f"{own}/versions/0/shards/1").content == shards(tmp_path / "origin")["1"]
        ballast.unlink()
        wait_until(lambda: is_whole(root, 1), child)
        assert shards(root, 1) == shards(tmp_path / "origin", 1)
