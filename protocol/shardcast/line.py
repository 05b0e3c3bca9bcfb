"""The line to a relay: HTTP/1.1 straight from the socket into the reader's buffer.

In: requests of an `httpx.Client`. Out: answers of which `answer_pieces` reads the body with one copy in place of four,
which is what lets a core take in gigabytes a second. Connections are kept and used again. Redirects aren't followed.
An answer has to come in whole within a timeout, and longer by what it has brought at a least rate: a relay that sends a
byte now and then holds nobody up. While nothing comes, whoever asked is given a look every quarter of a second.
"""

from __future__ import annotations

import errno
import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import httpx

from protocol.errors import ConfigError
from protocol.patience import LEAST_OF_WEIGHTS, impatient
from protocol.shardcast.token import TokenFile

READINTO = "proofpool.readinto"
"""The extension of an answer that reads its body into a buffer: `(memoryview) -> number of bytes`, 0 at the end."""
LOOK = "proofpool.look"
"""The extension of a request that is called while nothing comes, and may raise to leave the answer: `() -> None`."""
LINE_TIMEOUT_SECONDS = 60.0
PIECE_SECONDS = 0.25
WAKE_BYTES = 256 << 10
"""A thread isn't woken for less of a body, unless nothing more comes: a hundred threads have two cores."""


TOKEN_VARIABLE = "PROOFPOOL_SHARDCAST_TOKEN_FILE"
"""Names the file with the token that relays are shown, where they want one."""


def weights_client(timeout_seconds: float = LINE_TIMEOUT_SECONDS) -> httpx.Client:
    """A client for shards and manifests. Where the environment names proxies it is httpx's own, slower one.

    Either trusts the system's certificates, or those of `SSL_CERT_FILE`. Raises ConfigError for a proxy of a kind that
    it can't use.
    """
    file = os.environ.get(TOKEN_VARIABLE)
    auth = TokenFile(Path(file)) if file else None
    if proxies := getproxies():
        try:
            client = httpx.Client(auth=auth, timeout=timeout_seconds, verify=ssl.create_default_context())
        except (ImportError, ValueError) as error:  # SOCKS needs a package of its own; other schemes are none
            found = ", ".join(f"{kind}: {url.rpartition('@')[2]}" for kind, url in sorted(proxies.items()))
            todo = "name an http or https proxy, install socksio for a SOCKS one, or list the relays in no_proxy"
            raise ConfigError("the environment's proxy can't be used", f"{found}: {error}", todo) from error
        return impatient(client, LEAST_OF_WEIGHTS)
    return httpx.Client(auth=auth, timeout=timeout_seconds, transport=Line(timeout_seconds))


def answer_pieces(answer: httpx.Response, buffer: memoryview) -> Iterator[memoryview]:
    """The body piece by piece, as it comes; a piece is valid until the next one. Raises httpx.RequestError.

    A piece fills the buffer, unless that takes long.
    """
    readinto: Callable[[memoryview], int] | None = answer.extensions.get(READINTO)
    if readinto is None:
        yield from (memoryview(data) for data in answer.iter_bytes())
        return
    num_here, since = 0, time.monotonic()
    try:
        while num_bytes := readinto(buffer[num_here:]):
            num_here += num_bytes
            if num_here == len(buffer) or time.monotonic() - since > PIECE_SECONDS:
                yield buffer[:num_here]
                num_here, since = 0, time.monotonic()
    except Exception:
        if num_here:
            yield buffer[:num_here]  # what came before it broke off is as good as the rest
        raise
    if num_here:
        yield buffer[:num_here]


class Line(httpx.BaseTransport):
    """Connections to all relays of a fetch; threads may share it."""

    def __init__(self, timeout_seconds: float, least_bytes_per_second: int = LEAST_OF_WEIGHTS) -> None:
        self._timeout = timeout_seconds
        self._least = least_bytes_per_second
        self._lock = threading.Lock()
        self._idle: defaultdict[tuple[str, str, int], list[_Connection]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.TransportError: whoever is at the other end isn't there, or doesn't speak HTTP."""
        place = _place(request.url)
        try:
            connection, answer = self._ask(place, request)
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error) or "no answer in time", request=request) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise httpx.ConnectError(f"{type(error).__name__}: {error}", request=request) from error
        body = _Body(answer, request, connection.wake_at, lambda is_whole: self._give_back(place, connection, is_whole))
        return httpx.Response(
            answer.status, headers=answer.getheaders(), stream=body, extensions={READINTO: body.readinto}
        )

    def close(self) -> None:
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def _ask(self, place: tuple[str, str, int], request: httpx.Request) -> tuple[_Connection, http.client.HTTPResponse]:
        """A kept connection may have been closed at the other end meanwhile: then a new one is asked."""
        with self._lock:
            kept = self._idle[place].pop() if self._idle[place] else None
        if kept is not None:
            with suppress(ConnectionError, http.client.RemoteDisconnected):
                return kept, self._send(kept, request)
            kept.close()
        connection = self._connection(place)
        return connection, self._send(connection, request)

    def _send(self, connection: _Connection, request: httpx.Request) -> http.client.HTTPResponse:
        try:
            headers = {name: value for name, value in request.headers.items() if name != "connection"}
            connection.asked(request.extensions.get(LOOK))
            connection.request(request.method, request.url.raw_path.decode("ascii"), headers=headers)
            answer = connection.getresponse()
            connection.answered()
            return answer
        except BaseException:
            connection.close()
            raise

    def _connection(self, place: tuple[str, str, int]) -> _Connection:
        scheme, host, port = place
        if scheme != "https":
            return _Connection(host, port, self._timeout, self._least)
        with self._lock:
            self._tls = self._tls or ssl.create_default_context()
        return _Connection(host, port, self._timeout, self._least, self._tls)

    def _give_back(self, place: tuple[str, str, int], connection: _Connection, is_whole: bool) -> None:
        """Only a connection whose answer was read to its end can carry another one."""
        if not is_whole or connection.sock is None:
            connection.close()
            return
        with self._lock:
            self._idle[place].append(connection)


def _place(url: httpx.URL) -> tuple[str, str, int]:
    if url.scheme not in ("http", "https"):
        raise httpx.UnsupportedProtocol(f"{url} is neither http nor https")
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


class _Connection(http.client.HTTPConnection):
    """A connection each read of which knows how long the whole answer may take."""

    def __init__(
        self, host: str, port: int, timeout: float, least_bytes_per_second: int, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self._seconds, self._least, self._tls = timeout, least_bytes_per_second, tls
        self._plain: socket.socket | None = None
        self._wakes_at = 1
        self.asked()

    def asked(self, look: Callable[[], None] | None = None) -> None:
        """Another answer is waited for from now on; its head has the timeout and no longer."""
        self._since, self._num_bytes, self._is_body, self._look = time.monotonic(), 0, False, look
        self.wake_at(1)

    def answered(self) -> None:
        """The head is here; the body gains time by its bytes."""
        self._is_body = True

    def connect(self) -> None:
        sock = _connected(self.host, self.port, self.wait)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(self._seconds)
            if self._tls is None:
                self._plain, self._wakes_at = sock, 1
            else:
                sock = self._tls.wrap_socket(sock, server_hostname=self.host)
            sock.settimeout(PIECE_SECONDS)
        except BaseException:
            sock.close()
            raise
        self.sock = _TimedSocket(sock, self)

    def came(self, num_bytes: int) -> None:
        if self._is_body:
            self._num_bytes += num_bytes

    def wake_at(self, num_bytes: int) -> None:
        """Sleep from now on until so much is there, which the other end is going to send."""
        if self._plain is not None and num_bytes != self._wakes_at:  # setting it is a system call
            self._plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, num_bytes)
            self._wakes_at = num_bytes

    def check_time(self) -> None:
        """Raises TimeoutError where it is over."""
        waited = time.monotonic() - self._since
        if waited >= self._seconds + self._num_bytes / self._least:
            raise TimeoutError(f"only {self._num_bytes} bytes came in {waited:.1f} s")

    def wait(self) -> None:
        """Nothing came for a while. Raises TimeoutError as well, and whatever the one who asked raises."""
        self.check_time()
        self.wake_at(1)
        if self._look is not None:
            self._look()


def _connected(host: str, port: int, wait: Callable[[], None]) -> socket.socket:
    """A socket that doesn't block; `wait` is called now and then, and may raise. Raises OSError."""
    fault = OSError(errno.EHOSTUNREACH, f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            number = sock.connect_ex(address)
            if number == errno.EINPROGRESS:
                _until_writable(sock, wait)
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number == 0:
                return sock
        except BaseException:
            sock.close()
            raise
        sock.close()
        fault = OSError(number, os.strerror(number))
    raise fault


def _until_writable(sock: socket.socket, wait: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while not poll.poll(PIECE_SECONDS * 1000):
        wait()


class _TimedSocket:
    """What `http.client` uses of a socket, each read with a time of its own."""

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock, self._connection = sock, connection

    def sendall(self, data: Any) -> None:
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self._sock, self._connection))

    def close(self) -> None:
        self._sock.close()


class _TimedReads(io.RawIOBase):
    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock, self._connection = sock, connection
        self._open = sock.makefile(
            "rb", buffering=0
        )  # keeps the socket open for the body once the connection is closed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            self._connection.check_time()
            try:
                num_bytes = self._sock.recv_into(buffer)
            except TimeoutError:
                self._connection.wait()
                continue
            self._connection.came(num_bytes)
            return num_bytes

    def close(self) -> None:
        self._open.close()
        super().close()


class _Body(httpx.SyncByteStream):
    """An answer's body; `readinto` and iterating read the same bytes."""

    def __init__(
        self,
        answer: http.client.HTTPResponse,
        request: httpx.Request,
        wake_at: Callable[[int], None],
        end: Callable[[bool], None],
    ) -> None:
        self._answer, self._request, self._wake_at, self._end = answer, request, wake_at, end
        self._left = None if answer.chunked else answer.length
        self._is_over = False

    def __iter__(self) -> Iterator[bytes]:
        buffer = memoryview(bytearray(1 << 16))
        while num_bytes := self.readinto(buffer):
            yield bytes(buffer[:num_bytes])

    def readinto(self, buffer: memoryview) -> int:
        """One read's worth; 0 at the end. Raises httpx.TransportError where the end comes too early."""
        try:
            return self._readinto(buffer)
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error) or "no more bytes in time", request=self._request) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise httpx.ReadError(f"{type(error).__name__}: {error}", request=self._request) from error

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            is_whole = self._answer.isclosed() or self._left == 0
            is_kept = is_whole and not self._answer.will_close
            self._answer.close()
            self._end(is_kept)

    def _readinto(self, buffer: memoryview) -> int:
        if self._left is None:
            data = self._answer.read1(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        if self._left == 0:
            return 0
        self._wake_at(min(self._left, len(buffer), WAKE_BYTES))
        num_bytes = self._answer.fp.readinto1(buffer[: self._left])
        if num_bytes == 0:
            raise http.client.IncompleteRead(b"", self._left)
        self._left -= num_bytes
        return num_bytes
