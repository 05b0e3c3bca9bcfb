"""Relays for tests: real sockets on the loopback, each as honest as its test wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from protocol.shardcast.manifest import Manifest
from protocol.shardcast.origin import publish
from protocol.wire import WeightsRelease

Behave = Callable[[BaseHTTPRequestHandler, bytes], None]
"""Answers one GET, handed the bytes that it should have (from the asked-for byte on)."""


@dataclass
class Asked:
    """What a relay was asked: (path, Range header)."""

    url: str
    requests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def shards(self) -> list[str]:
        """Numbers of the shards, in order, each as often as it was asked for."""
        return [path.rpartition("/")[2] for path, _ in self.requests if "/shards/" in path]


def honestly(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    send(handler, data)


def send(handler: BaseHTTPRequestHandler, data: bytes, num_promised: int | None = None) -> None:
    """Bytes, of which the head may promise another number."""
    asked = handler.headers.get("Range")
    handler.send_response(206 if asked else 200)
    if asked:
        handler.send_header("Content-Range", f"{asked.replace('=', ' ')}999/1000")
    handler.send_header("Content-Length", str(len(data) if num_promised is None else num_promised))
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def relay(root: Path, behave: Behave = honestly, is_for_all: bool = False) -> Iterator[Asked]:
    """A relay over `root` that answers shards by `behave`, and its manifest honestly unless `is_for_all`."""
    asked = Asked("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            asked.requests.append((self.path, wanted))
            file = root / self.path.lstrip("/")
            if not file.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            (behave if is_for_all or "/shards/" in self.path else honestly)(self, file.read_bytes()[first:])

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    asked.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def published(tmp_path: Path, num_bytes: int = 40_000, shard_bytes: int = 1000, version: int = 0) -> Manifest:
    """A version of two files at `tmp_path/origin`, its checkpoint at `tmp_path/checkpoint`."""
    folder = tmp_path / "checkpoint"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(bytes(i * i % 251 for i in range(num_bytes)))
    return publish(folder, tmp_path / "origin", 1, version, shard_bytes)


def release_of(manifest: Manifest) -> WeightsRelease:
    return WeightsRelease(
        pool_id=manifest.pool_id, policy_version=manifest.policy_version, manifest_hash=manifest.manifest_hash
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
