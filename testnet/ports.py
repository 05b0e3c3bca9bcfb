"""Ports of the loopback address that stay this run's own, until it lets go of them.

In: how many. Out: `Ports`. Each is held by a socket that is bound and doesn't listen: no other testnet, and no
outgoing connection, is given the number, while a role of this run can listen on it, again after a kill as well.
"""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class Ports:
    """Example: `with Ports(2) as ports: coordinator, relay = ports.numbers`."""

    def __init__(self, count: int) -> None:
        self._sockets = [_hold() for _ in range(count)]

    @property
    def numbers(self) -> list[int]:
        return [int(each.getsockname()[1]) for each in self._sockets]

    def release(self) -> None:
        for each in self._sockets:
            each.close()

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _hold() -> socket.socket:
    """A port that nobody has; reuse is allowed only once it is ours, so that the kernel doesn't hand out a held one."""
    held = socket.socket()
    held.bind((HOST, 0))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
