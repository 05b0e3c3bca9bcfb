"""The pipes to and from a sandboxed program: fed and emptied without either side ever waiting for the other.

In: what goes into which descriptor, and which ones are read. Out: what came, bounded. A program that doesn't read, or
never stops writing, holds nothing up.
"""

from __future__ import annotations

import os
import selectors
from contextlib import suppress
from dataclasses import dataclass, field

CHUNK_BYTES = 1 << 16


@dataclass
class Outlet:
    """A descriptor that is read to its end; what comes past `most` bytes is counted and dropped."""

    fd: int
    most: int
    content: bytearray = field(default_factory=bytearray)
    num_bytes: int = 0

    def take(self) -> bool:
        """True at the end."""
        data = os.read(self.fd, CHUNK_BYTES)
        self.num_bytes += len(data)
        self.content += data[: max(0, self.most - len(self.content))]
        return not data


class Exchange:
    """`step` until `done`. The descriptors in `inlets` are closed once all is written or nobody reads any more."""

    def __init__(self, inlets: dict[int, bytes], outlets: list[Outlet], end_fd: int) -> None:
        """`end_fd` becomes readable when the program has ended."""
        self._selector = selectors.DefaultSelector()
        self._pending = {fd: memoryview(content) for fd, content in inlets.items()}
        self._outlets = {outlet.fd: outlet for outlet in outlets}
        for fd in self._pending:
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_WRITE)
        for fd in (*self._outlets, end_fd):
            self._selector.register(fd, selectors.EVENT_READ)
        self._waiting_for = {*self._outlets, end_fd}

    @property
    def done(self) -> bool:
        """The program has ended and everything that it wrote is here."""
        return not self._waiting_for

    def step(self, timeout_seconds: float) -> None:
        """Moves what can be moved, or waits that long for it."""
        for key, _ in self._selector.select(timeout_seconds):
            if key.fd in self._pending:
                self._feed(key.fd)
            elif key.fd not in self._outlets or self._outlets[key.fd].take():
                self._selector.unregister(key.fd)
                self._waiting_for.discard(key.fd)

    def close(self) -> None:
        self._selector.close()
        for fd in self._pending:
            os.close(fd)
        self._pending = {}

    def _feed(self, fd: int) -> None:
        rest = self._pending[fd]
        written = len(rest)
        with suppress(BrokenPipeError):
            written = os.write(fd, rest[:CHUNK_BYTES]) if rest else 0
        self._pending[fd] = rest[written:]
        if not self._pending[fd]:
            self._selector.unregister(fd)
            del self._pending[fd]
            os.close(fd)
