"""How long an HTTP answer may take: a peer that sends a byte now and then holds nobody up.

In: an `httpx.Client` with its read timeout, which is for each piece of an answer. Out: the same client, whose answers
have to come in whole: within that timeout, and longer by what they have brought at a least rate. Who is slower has a
read timeout, as who is silent. It counts from the last byte of the request, head and body alike.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

LEAST_BYTES_PER_SECOND = 128 << 10
"""Documents and rollout files: hardly any is longer than what the timeout alone allows."""
LEAST_OF_WEIGHTS = 16 << 10
"""Bytes per second of what is gigabytes long, over whichever line a provider has."""


def impatient(client: httpx.Client, least_bytes_per_second: int = LEAST_BYTES_PER_SECOND) -> httpx.Client:
    """The client, with every connection that it makes from now on timed; one without connections as it is."""
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = _TimedBackend(pool._network_backend, least_bytes_per_second)
    return client


class _TimedStream(httpcore.NetworkStream):
    """A connection on which each answer has its time."""

    def __init__(self, stream: httpcore.NetworkStream, least_bytes_per_second: int) -> None:
        self._stream = stream
        self._least = least_bytes_per_second
        self._asked = time.monotonic()
        self._num_bytes = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, None if timeout is None else self._left(timeout))
        self._num_bytes += len(data)
        return data

    def _left(self, timeout: float) -> float:
        """Seconds for the next piece. Raises ReadTimeout where there are none."""
        waited = time.monotonic() - self._asked
        left = timeout + self._num_bytes / self._least - waited
        if left <= 0:
            raise httpcore.ReadTimeout(f"only {self._num_bytes} bytes came in {waited:.1f} s")
        return min(timeout, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)
        self._asked, self._num_bytes = time.monotonic(), 0

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._least)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _TimedBackend(httpcore.NetworkBackend):
    """Connects as another backend does."""

    def __init__(self, backend: httpcore.NetworkBackend, least_bytes_per_second: int) -> None:
        self._backend = backend
        self._least = least_bytes_per_second

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        return _TimedStream(stream, self._least)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        return _TimedStream(self._backend.connect_unix_socket(path, timeout, socket_options), self._least)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)
