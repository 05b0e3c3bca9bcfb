"""The relays of a fetch: what is known of each, and which one is asked for the next shard.

In: what each request came to. Out: a relay, drawn with probability in proportion to success rate × bandwidth. Both are
moving averages; a failure says nothing about bandwidth, so it never enters that one; with every observation all success
rates heal a little, so that whoever comes back is tried again. Source: INTELLECT-2 (arXiv:2505.07291), section 2.2.
Beyond that, a relay with n questions that it hasn't begun to answer is drawn 1 + n times less often: one that is gone
without a word holds few of a client's shards. Bandwidth is a connection's; transfers that run count by their pace.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

WEIGHT_OF_NEW = 0.3
HEALING = 0.01
LOOK_SECONDS = 1.0
"""A transfer's pace says something after this long."""


@dataclass(frozen=True)
class Lie:
    """Bytes that aren't what was promised, all of which one relay sent: evidence against it."""

    url: str
    path: str
    expected: str
    found: str


@dataclass
class Relay:
    """One server, as this fetch has seen it."""

    url: str
    success_rate: float = 1.0
    bytes_per_second: float = 0.0
    """Moving average of whole transfers; 0 before the first."""
    num_bytes: int = 0
    num_failures: int = 0
    rests_until: float = 0.0
    """Clock seconds: it asked to be left alone."""
    lies: list[Lie] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    """Paths that were asked for, of whose answers nothing has come."""
    paces: dict[str, float] = field(default_factory=dict)
    """Bytes per second of transfers that are running, by their paths."""


class Relays:
    """Threads share it. Example: `relay = relays.draw(tried, now); …; relays.succeeded(relay, num_bytes, seconds)`."""

    def __init__(self, urls: Sequence[str], chance: random.Random | None = None) -> None:
        self._lock = threading.Lock()
        self._chance = chance or random.Random()
        self.all = [Relay(url.rstrip("/")) for url in dict.fromkeys(urls)]

    def add(self, url: str) -> None:
        """Another one, unless it is known."""
        with self._lock:
            if all(relay.url != url for relay in self.all):
                self.all = [*self.all, Relay(url)]

    def has_lied(self, url: str) -> bool:
        with self._lock:
            return any(relay.lies for relay in self.all if relay.url == url)

    def draw(self, tried: Collection[str], now: float, among: Collection[str] | None = None) -> Relay | None:
        """One that isn't among `tried`; None where there is none. Liars and who rests come after all others.

        `among`: who may be asked at all; None for everybody.
        """
        with self._lock:
            left = [one for one in self.all if one.url not in tried and (among is None or one.url in among)]
            rested = [relay for relay in left if relay.rests_until <= now]
            honest = [relay for relay in rested or left if not relay.lies]
            candidates = honest or [relay for relay in left if not relay.lies] or rested or left
            if not candidates:
                return None
            return self._chance.choices(candidates, self._weights(candidates))[0]

    def succeeded(self, relay: Relay, num_bytes: int, seconds: float) -> None:
        """A transfer came to its end, or was fine until it was left."""
        with self._lock:
            rate = max(num_bytes, 1) / max(seconds, 1e-6)
            old = relay.bytes_per_second or rate
            relay.bytes_per_second = old + WEIGHT_OF_NEW * (rate - old)
            self._observe(relay, 1.0)

    def failed(self, relay: Relay, rests_until: float = 0.0) -> None:
        with self._lock:
            relay.num_failures += 1
            relay.rests_until = max(relay.rests_until, rests_until)
            self._observe(relay, 0.0)

    def lied(self, relay: Relay, lie: Lie) -> None:
        with self._lock:
            relay.lies.append(lie)
            relay.num_failures += 1
            self._observe(relay, 0.0)

    def brought(self, relay: Relay, num_bytes: int) -> None:
        with self._lock:
            relay.num_bytes += num_bytes

    @contextmanager
    def asked(self, relay: Relay, path: str) -> Iterator[Callable[[], None]]:
        """While a relay is asked for a path; what it yields is to be called once it begins to answer."""
        with self._lock:
            relay.waiting.add(path)

        def answered() -> None:
            with self._lock:
                relay.waiting.discard(path)

        try:
            yield answered
        finally:
            with self._lock:
                relay.waiting.discard(path)
                relay.paces.pop(path, None)

    def paced(self, relay: Relay, path: str, bytes_per_second: float, seconds: float) -> None:
        """How a running transfer does, since it was asked for."""
        if seconds >= LOOK_SECONDS:
            with self._lock:
                relay.paces[path] = bytes_per_second

    def pace(self, relay: Relay) -> float:
        """Bytes per second of the relay's connections: the average of those that run, else what is known of it."""
        with self._lock:
            return _pace(relay)

    def best_pace_but(self, relay: Relay, among: Collection[str] | None = None) -> float:
        """That of the fastest other relay that is neither a liar nor failing; 0 where none is known."""
        with self._lock:
            others = (one for one in self.all if one is not relay and not one.lies and one.success_rate > 1 / 2)
            paces = (_pace(one) for one in others if among is None or one.url in among)
            return max(paces, default=0.0)

    @property
    def lies(self) -> list[Lie]:
        with self._lock:
            return [lie for relay in self.all for lie in relay.lies]

    def _weights(self, candidates: Sequence[Relay]) -> list[float]:
        """A relay that wasn't measured yet counts as an average one."""
        known = [relay.bytes_per_second for relay in self.all if relay.bytes_per_second]
        middle = sum(known) / len(known) if known else 1.0
        return [
            max(relay.success_rate, HEALING) * (relay.bytes_per_second or middle) / (1 + len(relay.waiting))
            for relay in candidates
        ]

    def _observe(self, relay: Relay, success: float) -> None:
        relay.success_rate += WEIGHT_OF_NEW * (success - relay.success_rate)
        for each in self.all:
            each.success_rate = min(1.0, each.success_rate + HEALING)


def _pace(relay: Relay) -> float:
    paces = relay.paces.values()
    return sum(paces) / len(paces) if paces else relay.bytes_per_second
