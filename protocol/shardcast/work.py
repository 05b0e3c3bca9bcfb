"""The work of a fetch: shards that are missing, and up to ten threads that ask relays for them.

In: shards by their number, where to put them, and relays. Out: every shard in its place, checked; or what stands in the
way, after three rounds of all relays with longer pauses each.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from enum import Enum
from typing import Protocol

import httpx

from protocol.clock import Clock
from protocol.errors import ShardCorrupt, Unreachable
from protocol.shardcast.document import PAUSE_SECONDS, ROUNDS, given_up
from protocol.shardcast.manifest import Kind, Shard, version_path
from protocol.shardcast.relays import Lie, Relay, Relays
from protocol.shardcast.transfer import Asked, NotThere, PieceSink, TooSlow, Transfer, receive
from protocol.telemetry import get_logger

SHARDS_IN_FLIGHT = 10
MOST_REST_SECONDS = 60.0
"""A relay that asks for a longer rest isn't waited for."""
IDLE_SECONDS = 0.05

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


class Sink(PieceSink, Protocol):
    """Where shards go."""

    def keep(self, shard: Shard) -> None:
        """All bytes of this one were written, and its hash was right."""
        ...

    def found(self, shards: Mapping[int, Shard]) -> set[int]:
        """The numbers of those that are here already, hashed once more."""
        ...


class Outcome(Enum):
    """What asking for a shard came to."""

    HERE = "here"
    NOT_THERE = "not there"
    FAILED = "failed"


class Route(Protocol):
    """Whom to ask for which shard, where that isn't the same for all."""

    def take(self, number: int, tried: Collection[str]) -> Collection[str]:
        """URLs to ask for it now, but for those tried; none where it isn't to be asked for yet."""
        ...

    def end(self, number: int, url: str, outcome: Outcome) -> None:
        """What asking came to, once for each time that `take` named somebody; `url` is empty where nobody was asked."""
        ...

    def rivals(self, url: str) -> Collection[str] | None:
        """URLs that could send a shard in place of this one; None for all."""
        ...


class ShardWork:
    """What is left of a version, and the threads that fetch it."""

    def __init__(
        self,
        policy_version: int,
        shards: Mapping[int, Shard],
        sink: Sink,
        http: httpx.Client,
        relays: Relays,
        clock: Clock,
        route: Route | None = None,
        kind: Kind = "shards",
    ) -> None:
        self._policy_version = policy_version
        self.route = route
        """May be set until `run`."""
        self._looked_at = 0.0
        self._sink, self._http, self._relays, self._clock = sink, http, relays, clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._fault: BaseException | None = None
        here = sink.found(shards)
        path = f"{version_path(policy_version)}/{kind}"
        self.missing = shards.keys() - here
        self._queue = deque(
            Transfer(shard, f"{path}/{index}", index) for index, shard in shards.items() if index not in here
        )
        self._num_left = len(self._queue)
        self._num_bytes = sum(shard.num_bytes for shard in shards.values())
        self._done = sum(shards[index].num_bytes for index in here)

    def run(
        self,
        progress: Progress = lambda done, total: None,
        wait_seconds: float = 0.0,
        deadline_seconds: float | None = None,
    ) -> None:
        """All shards. Raises what ended it: Unreachable, ShardCorrupt, OSError."""
        self._came = self._clock.now()
        self._progress, self._wait_seconds = progress, wait_seconds
        self._ends = None if deadline_seconds is None else self._came + deadline_seconds
        progress(self._done, self._num_bytes)
        num_threads = min(SHARDS_IN_FLIGHT, self._num_left)
        if num_threads == 0:
            return
        with ThreadPoolExecutor(num_threads, thread_name_prefix="shards") as pool:
            try:
                for future in [pool.submit(copy_context().run, self._fetch_shards) for _ in range(num_threads)]:
                    future.result()
            except BaseException as fault:  # Ctrl-C, which the main thread alone is told of: the others end, too
                self._fault = fault
                self._over.set()
        if self._fault is not None:
            raise self._fault

    def end(self) -> None:
        """Take up no more shards; `run` returns after the answers at hand."""
        self._over.set()

    def _fetch_shards(self) -> None:
        """What one thread does. A fault ends all of them, each after the answer it is reading."""
        try:
            while not self._over.is_set():
                transfer = self._take()
                if transfer is None:
                    self._clock.wait(self._over, IDLE_SECONDS)
                else:
                    self._attempt(transfer)
        except BaseException as fault:  # whichever it is: without its shard the others would wait for ever
            with self._lock:
                self._fault = self._fault or fault
            self._over.set()

    def _take(self) -> Transfer | None:
        """The next one that may be asked for now. Raises Unreachable past the deadline."""
        now = self._clock.now()
        if self._ends is not None and now > self._ends:
            raise Unreachable(
                f"policy version {self._policy_version} didn't come in time",
                f"{self._done} of {self._num_bytes} bytes are here",
                "try again: what came is kept",
            )
        with self._lock:
            if self.route is not None and now < self._looked_at + IDLE_SECONDS:
                return None  # another thread has just found nothing
            for index, transfer in enumerate(self._queue):
                if transfer.not_before <= now and self._may_ask(transfer, now):
                    del self._queue[index]
                    return transfer
            self._looked_at = now
        return None

    def _may_ask(self, transfer: Transfer, now: float) -> bool:
        """Whether somebody is to be asked for it now, and who."""
        if self.route is None:
            return True
        transfer.among = self.route.take(transfer.number, transfer.tried)
        if transfer.among:
            return True
        if transfer.tried:  # whoever has it failed once: another time it needn't, and the route knows whom to leave
            transfer.tried.clear()
            transfer.not_before = now + PAUSE_SECONDS * random.uniform(0.5, 1.5)
        return False

    def _attempt(self, transfer: Transfer) -> None:
        """Ask one relay for what is missing; then the shard is here, or in the queue again."""
        relay = self._relays.draw(transfer.tried, self._clock.now(), transfer.among)
        if relay is None:
            self._end(transfer, "", Outcome.FAILED)
            self._round_over(transfer)
            return
        if self.route is not None:
            transfer.rivals = self.route.rivals(relay.url)
        outcome = Outcome.FAILED
        try:
            outcome = self._ask(transfer, relay)
        finally:
            self._end(transfer, relay.url, outcome)
            if outcome is not Outcome.HERE:
                self._again(transfer, relay)

    def _end(self, transfer: Transfer, url: str, outcome: Outcome) -> None:
        if self.route is not None:
            self.route.end(transfer.number, url, outcome)
            self._looked_at = 0.0

    def _ask(self, transfer: Transfer, relay: Relay) -> Outcome:
        started, first = self._clock.now(), transfer.num_done
        outcome = Outcome.FAILED
        try:
            receive(
                transfer, relay, self._relays, self._http, self._sink, self._clock, lambda: not self._queue, self._look
            )
            self._check(transfer, relay)
            outcome = Outcome.HERE
        except NotThere as error:
            transfer.is_coming = True
            transfer.failures.append(error)
            return Outcome.NOT_THERE
        except Asked as error:
            self._relays.failed(relay, self._clock.now() + min(error.seconds, MOST_REST_SECONDS))
            transfer.failures.append(error)
            return outcome
        except TooSlow as error:
            get_logger().info("shardcast.slow", url=relay.url, why=str(error))
            transfer.tried.clear()  # it didn't fail, and is no step towards giving up
            transfer.failures.append(error)
        except (httpx.HTTPError, httpx.InvalidURL, ShardCorrupt) as error:
            self._relays.failed(relay)
            transfer.failures.append(error)
            return outcome
        self._relays.succeeded(relay, max(0, transfer.num_done - first), self._clock.now() - started)
        return outcome

    def _look(self) -> None:
        """Whether an answer is still read. Raises httpx.ReadTimeout where it isn't."""
        if self._ends is not None and self._clock.now() > self._ends:
            raise httpx.ReadTimeout("the time for the whole is over")
        if self._fault is not None:
            raise httpx.ReadTimeout("the fetch has failed elsewhere")

    def _check(self, transfer: Transfer, relay: Relay) -> None:
        """A shard of which all bytes came. Raises ShardCorrupt where they are the wrong ones."""
        shard = transfer.shard
        if transfer.found == shard.blake3:
            self._sink.keep(shard)
            with self._lock:
                self._done += shard.num_bytes
                self._num_left -= 1
                self._came = self._clock.now()
                self._progress(self._done, self._num_bytes)
                if self._num_left == 0:
                    self._over.set()
            return
        if set(transfer.senders) == {relay.url}:
            self._blame(relay, Lie(relay.url, transfer.path, shard.blake3, transfer.found))
        found = transfer.found
        transfer.is_whole_only = True
        transfer.restart()
        raise ShardCorrupt(f"a shard of {shard.file} doesn't match its hash", f"{found}, not {shard.blake3}")

    def _blame(self, relay: Relay, lie: Lie) -> None:
        self._relays.lied(relay, lie)
        get_logger().warning("shardcast.lie", url=lie.url, path=lie.path, expected=lie.expected, found=lie.found)

    def _again(self, transfer: Transfer, relay: Relay) -> None:
        transfer.tried.add(relay.url)
        with self._lock:
            self._queue.append(transfer)

    def _round_over(self, transfer: Transfer) -> None:
        """All relays were asked; after a pause they are asked once more, a few times."""
        now = self._clock.now()
        is_waited_for = transfer.is_coming and now < self._came + self._wait_seconds
        if not is_waited_for:
            transfer.num_rounds += 1
        if transfer.num_rounds >= ROUNDS or not self._relays.all:
            raise given_up(transfer.path, self._relays, transfer.failures)
        pause = PAUSE_SECONDS * 2**transfer.num_rounds * random.uniform(0.5, 1.5)
        rested = min(relay.rests_until for relay in self._relays.all)
        transfer.not_before = max(now + pause, rested)
        transfer.tried.clear()
        transfer.is_coming = False
        del transfer.failures[:-ROUNDS]
        with self._lock:
            self._queue.append(transfer)
