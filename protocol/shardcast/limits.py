"""What one address may take of a relay: connections at a time, and bytes a second.

In: who comes and goes, and what is sent to whom. Out: whether to let in, and seconds to pause. Budgets are buckets that
fill at a rate up to a burst; an address that is gone and whose bucket is full is forgotten, so memory is bounded by the
connections. An address is where a connection comes from, whatever its requests' heads say; of IPv6 it is the /64, which
one subscriber has whole.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from protocol.clock import Clock

SUBSCRIBER_BITS = 64
"""Of an IPv6 address: a subscriber chooses the rest."""
BURST_SECONDS = 2.0
"""A bucket holds what its rate brings in this time."""
SWEEP_SIZE = 4096
"""Buckets of who is gone are looked through when there are more than this."""


@dataclass(frozen=True)
class Limits:
    """0 bytes per second: no limit."""

    connections: int = 1024
    connections_per_ip: int = 64
    bytes_per_second_per_ip: int = 0


@dataclass
class _Visitor:
    num_connections: int = 0
    budget: float = 0.0
    filled_at: float = 0.0


class Visitors:
    """Threads share it. Example: `if visitors.enter(ip): …; pause = visitors.sent(ip, 4096); …; visitors.leave(ip)`."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._by_ip: dict[str, _Visitor] = {}
        self._num_connections = 0

    @property
    def num_connections(self) -> int:
        return self._num_connections

    def enter(self, ip: str) -> bool:
        """Whether this address may have another connection, which then counts."""
        with self._lock:
            visitor = self._by_ip.get(ip) or _Visitor(0, self._burst, self._clock.now())
            is_full = self._num_connections >= self.limits.connections
            if is_full or visitor.num_connections >= self.limits.connections_per_ip:
                return False
            self._by_ip[ip] = visitor
            visitor.num_connections += 1
            self._num_connections += 1
            return True

    def leave(self, ip: str) -> None:
        with self._lock:
            self._by_ip[ip].num_connections -= 1
            self._num_connections -= 1
            if not self.limits.bytes_per_second_per_ip:
                self._by_ip = {ip: one for ip, one in self._by_ip.items() if one.num_connections}
            elif len(self._by_ip) > SWEEP_SIZE:
                self._sweep()

    def sent(self, ip: str, num_bytes: int) -> float:
        """Seconds to pause before more is sent to this address."""
        rate = self.limits.bytes_per_second_per_ip
        if not rate:
            return 0.0
        with self._lock:
            visitor = self._by_ip[ip]
            self._fill(visitor)
            visitor.budget -= num_bytes
            return max(0.0, -visitor.budget / rate)

    @property
    def _burst(self) -> float:
        return self.limits.bytes_per_second_per_ip * BURST_SECONDS

    def _fill(self, visitor: _Visitor) -> None:
        now = self._clock.now()
        gained = (now - visitor.filled_at) * self.limits.bytes_per_second_per_ip
        visitor.budget, visitor.filled_at = min(self._burst, visitor.budget + gained), now

    def _sweep(self) -> None:
        for visitor in self._by_ip.values():
            self._fill(visitor)
        self._by_ip = {ip: one for ip, one in self._by_ip.items() if one.num_connections or one.budget < self._burst}


def subscriber_of(address: str) -> str:
    """Whom an address belongs to, as far as limits go: an IPv4 address, or the first half of an IPv6 one.

    >>> subscriber_of("192.0.2.7"), subscriber_of("2001:db8::1:2:3:4"), subscriber_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    found = ip_address(address.partition("%")[0])
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((found, SUBSCRIBER_BITS), strict=False))
