"""Who is in a network of shaped links: an origin, relays, clients; forked from a process that has all imports.

In: a pipe. A member says that it is ready, is told when to begin, and says what came of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from protocol.clock import SteadyClock
from protocol.errors import SignatureInvalid
from protocol.shardcast.client import fetch
from protocol.shardcast.exchange import Exchange
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.forwarder import Forwarder
from protocol.shardcast.limits import Limits
from protocol.shardcast.line import weights_client
from protocol.shardcast.relays import Relay, Relays
from protocol.wire import ShardListing, Signed, WeightsRelease
from tests.bench.links.namespace import enter

PORT = 8500
ANYWHERE = ("0.0.0.0", PORT)
PATIENCE_SECONDS = 60.0
DEADLINE_SECONDS = 300.0
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Got:
    """What a client found."""

    seconds: float
    cpu_seconds: float
    is_right: bool
    relays: tuple[Relay, ...] = ()
    fault: str = ""


@dataclass
class Member:
    """A process in a host's namespace."""

    name: str
    process: BaseProcess
    pipe: Connection
    said: list[Any] = field(default_factory=list)

    def tell(self, word: object) -> None:
        self.pipe.send(word)

    def hear(self, seconds: float = DEADLINE_SECONDS + PATIENCE_SECONDS) -> Any:
        """What it says next. Raises TimeoutError of a member that says nothing; EOFError of one that is gone."""
        if not self.pipe.poll(seconds):
            raise TimeoutError(f"{self.name} says nothing")
        return self.pipe.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@contextmanager
def member(name: str, namespace: str, work: Callable[..., None], *arguments: object) -> Iterator[Member]:
    """It is killed at the end, unless it has ended."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=_inside, args=(namespace, work, theirs, *arguments), name=name, daemon=True)
    process.start()
    theirs.close()
    one = Member(name, process, ours)
    try:
        yield one
    finally:
        one.kill()
        ours.close()


def _inside(namespace: str, work: Callable[..., None], pipe: Connection, *arguments: object) -> None:
    enter(namespace)
    work(pipe, *arguments)


def serve(pipe: Connection, root: Path) -> None:
    """A folder that is served as it is: an origin, or a relay that has everything."""
    with FileServer(root, ANYWHERE, Limits(connections_per_ip=1024)) as server:
        before = time.process_time()
        pipe.send("ready")
        with suppress(EOFError):
            pipe.recv()
        pipe.send((time.process_time() - before, server.served.num_bytes))


@dataclass
class Announced:
    """What a coordinator would say."""

    release: WeightsRelease | None = None

    def newest(self) -> WeightsRelease | None:
        return self.release

    def check(self, listing: Signed[ShardListing]) -> ShardListing:
        raise SignatureInvalid("nothing is written ahead of its release here", "no listing")


def forward(
    pipe: Connection, root: Path, own_url: str, upstreams: list[str], peers: list[str], release: WeightsRelease
) -> None:
    """A relay that has nothing until it is told to begin; with peers it shares out what upstreams send."""
    stop, clock, relays = threading.Event(), SteadyClock(), Relays(upstreams)
    with ExitStack() as stack:
        http = stack.enter_context(weights_client())
        server = stack.enter_context(FileServer(root, ANYWHERE, Limits(connections_per_ip=1024)))
        exchange = Exchange(own_url, lambda: peers, upstreams, relays, clock) if peers else None
        if exchange is not None:
            stack.enter_context(exchange)
        forwarder = Forwarder(root, upstreams, Announced(release), http, 5, clock, exchange, relays)
        before = time.process_time()
        pipe.send("ready")
        pipe.recv()
        thread = threading.Thread(target=forwarder.run, args=(stop,))
        thread.start()
        with suppress(EOFError):
            pipe.recv()
        stop.set()
        thread.join()
        pipe.send((time.process_time() - before, server.served.num_bytes))


def client(pipe: Connection, urls: list[str], release: WeightsRelease, folder: Path, model: Path) -> None:
    """One version, and whether its bytes are those of `model`."""
    pipe.send("ready")
    pipe.recv()
    before, started = os.times(), time.monotonic()
    try:
        with weights_client() as http:
            fetched = fetch(
                http, urls, release, folder, wait_seconds=PATIENCE_SECONDS, deadline_seconds=DEADLINE_SECONDS
            )
    except Exception as error:  # a fault is a finding of the test
        pipe.send(Got(time.monotonic() - started, 0.0, False, fault=f"{type(error).__name__}: {error}"))
        return
    seconds, after = time.monotonic() - started, os.times()
    right = (fetched.folder / model.name).read_bytes() == model.read_bytes()
    pipe.send(Got(seconds, sum(after[:2]) - sum(before[:2]), right, fetched.relays))
