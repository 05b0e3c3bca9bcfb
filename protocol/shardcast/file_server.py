"""Plain files over HTTP/1.1, handed from the page cache to the socket by the kernel (sendfile).

In: a folder of published versions. Out: `GET` and `HEAD` of `/versions/N/…`, with ranges, ETags and kept connections,
and `/healthz`; nothing that isn't a finished file of a version: no hidden file, no link, no folder. A thread serves a
connection, and waits while the kernel copies; connections are bounded, in all and for each address, and an address may
have a budget of bytes a second. Whoever is slower than the least rate is let go. Any other web server may serve the
same folder (deploy/nginx-relay.conf).
"""

from __future__ import annotations

import os
import re
import socket
import socketserver
import stat
import struct
import threading
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

from protocol.clock import Clock, SteadyClock
from protocol.errors import ProofpoolError, SignatureInvalid
from protocol.patience import LEAST_OF_WEIGHTS
from protocol.shardcast.limits import Limits, Visitors, subscriber_of
from protocol.shardcast.token import SCHEME, Gate

REQUEST_SECONDS = 15.0
"""A request has to come within this, or the next one on a kept connection."""
SEND_SECONDS = 30.0
"""A reader that takes nothing for so long is gone."""
SEND_BYTES = 1 << 20
"""Handed to the kernel at a time; between two, budget and pace are looked at."""
RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
SERVED = re.compile(rf"/versions/(?:0|[1-9][0-9]{{0,19}})/(?:{NAME}/)?{NAME}", re.ASCII)
"""Paths that may name a file; all others are 404 without a look at the disk."""


@dataclass
class Served:
    """What a server has done since it started."""

    num_bytes: int = 0
    num_requests: int = 0
    num_refused: int = 0
    """Connections over the limits."""


class FileServer:
    """Example: `with FileServer(root, ("127.0.0.1", 0)) as server: httpx.get(f"{server.url}/healthz")`."""

    def __init__(
        self,
        root: Path,
        address: tuple[str, int],
        limits: Limits | None = None,
        clock: Clock | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`gate` lets in who shows a token; without one it is everybody.

        Raises OSError where the folder can't be made, or the address is taken.
        """
        (root / "versions").mkdir(parents=True, exist_ok=True)
        self.served = Served()
        clock = clock or SteadyClock()
        self.visitors = Visitors(limits or Limits(), clock)
        self._server = _Server(address, root.resolve(), self.served, self.visitors, clock, gate)
        self._thread = threading.Thread(target=self.run, name="files", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        host = str(self._server.server_address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def run(self) -> None:
        """Serve until `stop`."""
        self._server.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """End `run`, which is in another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Take no more connections, and end those there are."""
        self._server.server_close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()
        self._thread.join()
        self.close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Takes a connection only from who may have another one."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        root: Path,
        served: Served,
        visitors: Visitors,
        clock: Clock,
        gate: Gate | None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.root, self.served, self.visitors, self.clock = root, served, visitors, clock
        self.gate = gate
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, str] = {}
        super().__init__(address, _Answers)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        subscriber = subscriber_of(str(client_address[0]))
        if not self.visitors.enter(subscriber):
            self.served.num_refused += 1
            return False
        with self._lock:
            self._connections[request] = subscriber
        return True

    def subscriber(self, connection: socket.socket) -> str:
        """Whom a connection was let in for."""
        return self._connections[connection]

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            ip = self._connections.pop(request, None)
        if ip is not None:
            self.visitors.leave(ip)
        super().shutdown_request(request)

    def server_close(self) -> None:
        self.over.set()
        super().server_close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # its thread has closed it meanwhile

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that hangs up is no event; whatever else fails in a thread ends one connection."""


class _Answers(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "proofpool", ""
    timeout = REQUEST_SECONDS
    wbufsize = 1 << 16  # a head leaves in one piece
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.server.served.num_requests += 1
        if self.path == "/healthz":
            self._say(200, "ok\n")
            return
        if not self._is_let_in():
            return
        descriptor = self._opened()
        if descriptor is None:
            self._say(404, "there is no such file\n")
            return
        try:
            self._answer(descriptor, os.fstat(descriptor))
        finally:
            os.close(descriptor)

    do_HEAD = do_GET

    def _is_let_in(self) -> bool:
        """By their token; who isn't is told why."""
        if self.server.gate is None:
            return True
        try:
            self.server.gate.check(self.headers.get("Authorization"))
        except SignatureInvalid as error:
            self._say(401, f"{error}\n", ("WWW-Authenticate", SCHEME))
            return False
        except ProofpoolError as error:
            self._say(503, f"{error}\n", ("Retry-After", "1"))
            return False
        return True

    def _opened(self) -> int | None:
        """The file that the path names, if it is a plain one of a version."""
        if not SERVED.fullmatch(self.path):
            return None
        try:
            descriptor = os.open(f"{self.server.root}{self.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None

    def _answer(self, descriptor: int, file: os.stat_result) -> None:
        etag = f'"{file.st_mtime_ns:x}-{file.st_size:x}-{file.st_ino:x}"'
        if etag in (one.strip() for one in self.headers.get("If-None-Match", "").split(",")):
            self._head(304, 0, etag, file)
            return
        wanted = self.headers.get("Range") if self.headers.get("If-Range", etag) == etag else None
        first, end = _span(wanted, file.st_size) if wanted else (0, file.st_size)
        if first >= end and wanted:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{file.st_size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        is_part = wanted is not None and (first, end) != (0, file.st_size)
        part = f"bytes {first}-{end - 1}/{file.st_size}" if is_part else None
        self._head(206 if is_part else 200, end - first, etag, file, part)
        if self.command == "GET":
            self._send(descriptor, first, end)

    def _head(self, status: int, num_bytes: int, etag: str, file: os.stat_result, part: str | None = None) -> None:
        self.send_response(status)
        if part is not None:
            self.send_header("Content-Range", part)
        if status != 304:
            self.send_header("Content-Length", str(num_bytes))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", formatdate(file.st_mtime, usegmt=True))
        self.end_headers()

    def _send(self, descriptor: int, position: int, end: int) -> None:
        """The bytes, as fast as the reader and its budget take them. Raises OSError where it is gone or too slow."""
        self.wfile.flush()
        self.connection.settimeout(
            None
        )  # the kernel's own timeout: one call a mebibyte, in place of four and their polls
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(SEND_SECONDS), 0))
        started, first, clock = self.server.clock.now(), position, self.server.clock
        subscriber = self.server.subscriber(self.connection)
        while position < end:
            sent = os.sendfile(self.connection.fileno(), descriptor, position, min(SEND_BYTES, end - position))
            if not sent:
                raise OSError("a file became shorter")
            position += sent
            self.server.served.num_bytes += sent
            pause = self.server.visitors.sent(subscriber, sent)
            if pause and clock.wait(self.server.over, pause):
                raise OSError("the server ends")
            if not pause and clock.now() - started > SEND_SECONDS + (position - first) / LEAST_OF_WEIGHTS:
                raise OSError("a reader is too slow")
        self.connection.settimeout(REQUEST_SECONDS)

    def _say(self, status: int, text: str, *heads: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in heads:
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text.encode())

    def log_message(self, *arguments: Any) -> None:
        """A request is no event."""


def _span(wanted: str, num_bytes: int) -> tuple[int, int]:
    """First byte and end of a single range; the whole file for what is none, an empty span for one past the end."""
    found = RANGE.fullmatch(wanted.strip())
    if found is None or found.groups() == ("", ""):
        return 0, num_bytes
    first, last = found.groups()
    if not first:
        return max(0, num_bytes - int(last)), num_bytes if int(last) else 0
    end = min(int(last) + 1, num_bytes) if last else num_bytes
    return int(first), end
