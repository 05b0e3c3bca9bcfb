"""The lag: all packets between two network namespaces, each handed over a fixed time after it came.

A kernel without `netem` can't delay. This process has a TUN device in both namespaces, and holds what it reads of one
until its time has come to be written to the other. Large segments stay whole (the header that a TUN device puts
before a packet is carried along), so that a hundred megabytes a second are a few thousand packets.

    python -m tests.bench.links.lag NAMESPACE OTHER SECONDS    says "ready" once both devices are there
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

from tests.bench.links.namespace import enter

DEVICE = "lag"
PACKET_BYTES = (64 << 10) + 64
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
CHECKSUM_LATER, LARGE_SEGMENTS = 0x01, 0x02


def device() -> int:
    """A TUN device in the namespace that this process is in. Raises OSError where the kernel has none."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    wanted = struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR)
    fcntl.ioctl(descriptor, TUNSETIFF, wanted)
    fcntl.ioctl(descriptor, TUNSETOFFLOAD, CHECKSUM_LATER | LARGE_SEGMENTS)
    return descriptor


def carry(one: int, other: int, seconds: float) -> None:
    """Packets both ways, until the standard input ends, which it does with whoever started this."""
    goes_to = {one: other, other: one}
    held: dict[int, deque[tuple[float, bytes]]] = {one: deque(), other: deque()}
    while True:
        now = time.monotonic()
        dues = [queue[0][0] for queue in held.values() if queue]
        ready, _, _ = select.select([*goes_to, 0], [], [], max(0.0, min(dues) - now) if dues else None)
        if 0 in ready:
            return
        for descriptor in ready:
            _take(descriptor, held[descriptor], seconds)
        now = time.monotonic()
        for descriptor, queue in held.items():
            while queue and queue[0][0] <= now:
                _hand_over(goes_to[descriptor], queue.popleft()[1])


def _take(descriptor: int, queue: deque[tuple[float, bytes]], seconds: float) -> None:
    while True:
        try:
            packet = os.read(descriptor, PACKET_BYTES)
        except BlockingIOError:
            return
        queue.append((time.monotonic() + seconds, packet))


def _hand_over(descriptor: int, packet: bytes) -> None:
    with suppress(OSError):  # the device isn't up, or full: a packet that is lost, as packets are
        os.write(descriptor, packet)


if __name__ == "__main__":
    devices = []
    for name in sys.argv[1:3]:
        enter(name)
        devices.append(device())
    with suppress(PermissionError):  # the wire doesn't wait for a core
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    print("ready", flush=True)
    carry(devices[0], devices[1], float(sys.argv[3]))
