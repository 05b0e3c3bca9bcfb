"""A TCP proxy whose line can be made slow or cut: what a worker on a bad network sees of its coordinator."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress
from typing import Literal

Line = Literal["fine", "slow", "cut"]
PIECE = 4096
SLOW_BYTES_PER_SECOND = 20_000


class SlowLine:
    """Example: `with SlowLine(port) as line: line.become("slow"); httpx.get(f"http://127.0.0.1:{line.port}")`."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._line: Line = "fine"
        self._stop = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def become(self, line: Line) -> None:
        """From now on. A cut ends what is under way."""
        self._line = line
        if line == "cut":
            self._close_all()

    def __enter__(self) -> SlowLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stop.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close_all()
        self._thread.join()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with closing(near):
            if self._line == "cut":
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=10)
            except OSError:  # nobody listens there just now
                return
            far.settimeout(None)
            with closing(far), self._noted(near, far):
                back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
                back.start()
                self._pump(near, far)
                back.join()

    def _noted(self, *sockets: socket.socket) -> _Noted:
        return _Noted(self._open, self._lock, sockets)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Until one end is closed, at the line's speed."""
        with suppress(OSError):
            while data := source.recv(PIECE):
                if self._line == "slow":
                    self._stop.wait(len(data) / SLOW_BYTES_PER_SECOND)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _close_all(self) -> None:
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class _Noted:
    """Connections that a cut has to end."""

    def __init__(self, known: set[socket.socket], lock: threading.Lock, sockets: tuple[socket.socket, ...]) -> None:
        self._known, self._lock, self._sockets = known, lock, sockets

    def __enter__(self) -> None:
        with self._lock:
            self._known.update(self._sockets)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._known.difference_update(self._sockets)
