"""SHARDCAST under faults: an origin, relays that exchange, clients, each a process that may be killed at any moment.

In: a seed. Out: for each fault what a client came to: the right bytes, or an error that says what is wrong; anything
else (wrong bytes, a version that isn't whole, a traceback, no end) is a finding. Processes run the commands that an
operator runs, forked from one that has the imports; the coordinator's word is played by a server of the test's own.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from protocol import api, cli
from protocol.canonical import hex0x
from protocol.shardcast.assembly import CHECKED_FILE
from protocol.shardcast.folder import is_intact
from protocol.shardcast.manifest import Manifest, version_path
from protocol.shardcast.origin import publish
from protocol.signing import Signer, SigningDomain
from protocol.wire import Signed, WeightsRelease
from testnet.ports import Ports

MODEL = "model.safetensors"
NUM_BYTES, SHARD_BYTES = 3 << 20, 64 << 10
NUM_SHARDS = NUM_BYTES // SHARD_BYTES
RELAY_BYTES_PER_SECOND = 1 << 20
"""So that a fetch takes a second, and can be killed in it."""
WAIT_SECONDS, DEADLINE_SECONDS = 10.0, 40.0
STUCK_SECONDS = 60.0
"""No client may take longer, whatever happens; its own deadline comes before."""
LOOK_SECONDS = 0.005
POOL_ID = 7
RELAYS = ("relay0", "relay1")
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload([__name__, "protocol.shardcast.commands", "protocol.shardcast.client"])


class Expected(NamedTuple):
    """Whether a client may end with the right bytes, and whether with an error."""

    right: bool
    error: bool


RIGHT, ERROR, EITHER = Expected(True, False), Expected(False, True), Expected(True, True)


@dataclass(frozen=True)
class Trial:
    """A fault, and what came of it."""

    number: int
    kind: str
    found: str
    """`right`, or the error's first line."""
    seconds: float
    finding: str = ""
    """What should never be; empty where all is well."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked was killed."""


class Coordinator:
    """What says which versions there are: releases signed by the trainer, or what the fault makes of them."""

    def __init__(self, trainer: Signer, domain: SigningDomain, relay_urls: Sequence[str]) -> None:
        self.trainer, self.domain, self.relay_urls = trainer, domain, tuple(relay_urls)
        self.releases: dict[int, Signed[WeightsRelease]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = outer.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """A request is no event."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Coordinator:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def signed(self, manifest: Manifest, signer: Signer | None = None) -> Signed[WeightsRelease]:
        release = WeightsRelease(
            pool_id=POOL_ID, policy_version=manifest.policy_version, manifest_hash=manifest.manifest_hash
        )
        return Signed[WeightsRelease].by(signer or self.trainer, release, self.domain)

    def answer(self, path: str) -> tuple[int, bytes]:
        if path == "/v1/pool":
            return 200, self._pool().model_dump_json().encode()
        number = path.rpartition("/")[2]
        if path.startswith("/v1/weights/") and number.isdigit() and int(number) in self.releases:
            release = self.releases[int(number)]
            view = api.WeightsView(release=release, beacon_block=1, beacon_hash=None, published_time=1)
            return 200, view.model_dump_json().encode()
        problem = api.Problem(type="about:blank", title="there is none", status=404, code="not_found")
        return 404, problem.model_dump_json().encode()

    def _pool(self) -> api.PoolInfo:
        numbers = ("max_async", "accept_quorum", "slash_quorum", "confirmations", "epoch")
        prices = ("price_wei", "verify_price_wei", "min_allotment_wei")
        contracts = dict.fromkeys(("credits", "registry", "pools", "ledger", "court", "jury"), self.domain.contract)
        info: dict[str, Any] = dict.fromkeys(numbers, 1) | dict.fromkeys(prices, "1")
        return api.PoolInfo(
            pool_id=POOL_ID,
            chain_id=self.domain.chain_id,
            deployment_salt=self.domain.salt,
            rules_hash="0x" + "00" * 32,
            model_hash="0x" + "00" * 32,
            coordinator=self.trainer.address,
            trainer=self.trainer.address,
            contracts=api.ContractAddresses(**contracts),
            freshness=api.Freshness(head_block=1, indexed_block=1, chain_time=1, lag_seconds=0),
            policy_version=max(self.releases, default=None),
            shardcast_urls=self.relay_urls,
            paused=False,
            **info,
        )


@dataclass(frozen=True)
class Ailment:
    """What is wrong with a process from its start."""

    clock_skew_seconds: float = 0.0
    most_file_bytes: int = 0
    """No file gets larger, as on a full disk; 0: any size."""


HEALTHY = Ailment()


def command(arguments: list[str], said: Path, ailment: Ailment) -> None:
    """What a forked process does: one `proofpool` command, with what it says in a file."""
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
    os.dup2(1, 2)
    if ailment.most_file_bytes:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (ailment.most_file_bytes, ailment.most_file_bytes))
    if ailment.clock_skew_seconds:
        right = time.time
        time.time = lambda: right() + ailment.clock_skew_seconds * random.uniform(0.5, 1.0)  # and it jumps
    code = cli.run(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def publish_to(checkpoint: Path, root: Path, version: int) -> None:
    """What the trainer's process does."""
    publish(checkpoint, root, POOL_ID, version, SHARD_BYTES)


@dataclass
class World:
    """A pool's origin and relays that run, and the versions there are."""

    folder: Path
    chance: random.Random
    coordinator: Coordinator
    ports: dict[str, int]
    version: int = -1
    manifests: dict[int, Manifest] = field(default_factory=dict)
    processes: dict[str, BaseProcess] = field(default_factory=dict)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def shards(self, name: str, version: int | None = None) -> Path:
        number = self.version if version is None else version
        return self.folder / name / version_path(number) / "shards"

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.said").read_text(errors="replace")

    def start(self, name: str, arguments: Sequence[str], ailment: Ailment = HEALTHY) -> BaseProcess:
        process = FORKS.Process(
            target=command, args=(list(arguments), self.folder / f"{name}.said", ailment), name=name, daemon=True
        )
        process.start()
        self.processes[name] = process
        return process

    def start_server(self, name: str, ailment: Ailment = HEALTHY) -> None:
        """The origin or a relay, which answers when this returns."""
        port = ["--port", str(self.ports[name])]
        if name == "origin":
            self.start(name, ["shardcast", "serve", str(self.folder / name), *port], ailment)
        else:
            own = ["--url", self.url(name), "--bytes-per-second-per-ip", str(RELAY_BYTES_PER_SECOND)]
            pulls = ["--upstream", self.url("origin"), "--coordinator", self.coordinator.url]
            self.start(name, ["shardcast", "relay", str(self.folder / name), *port, *own, *pulls], ailment)
        wait_until(lambda: answers(self.url(name)), f"{name} answers")

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.join()

    def end(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def publish(self) -> None:
        """The next version, of other bytes, at the origin; nobody was told yet."""
        self.version += 1
        checkpoint = self.folder / "checkpoint"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / MODEL).write_bytes(self.chance.randbytes(NUM_BYTES))
        self.manifests[self.version] = publish(checkpoint, self.folder / "origin", POOL_ID, self.version, SHARD_BYTES)

    def announce(self) -> None:
        manifest = self.manifests[self.version]
        self.coordinator.releases[self.version] = self.coordinator.signed(manifest)

    def await_relays(self) -> None:
        """Until all of them have the version. Raises TimeoutError with what one says that never has."""
        for name in RELAYS:
            if name in self.processes:
                self._await(name)

    def _await(self, name: str) -> None:
        try:
            wait_until(lambda: self.has_all(name), f"{name} has version {self.version}")
        except TimeoutError as error:
            parent = self.shards(name).parent
            missing = set(range(NUM_SHARDS)) - {int(path.name) for path in parent.glob("shards/[0-9]*")}
            holdings = [
                path.read_text()[:300] for path in self.folder.glob(f"relay*/{version_path(self.version)}/here.json")
            ]
            raise TimeoutError(f"{error}; missing {missing}, holdings {holdings}; {self.said(name)[-2000:]}") from error

    def has_all(self, name: str) -> bool:
        shards = self.shards(name)
        return shards.exists() and sum(path.name.isdigit() for path in shards.iterdir()) == NUM_SHARDS

    def fetch(self, ailment: Ailment = HEALTHY, out: Path | None = None) -> BaseProcess:
        """A client that has begun."""
        given = ["--wait", str(WAIT_SECONDS), "--deadline", str(DEADLINE_SECONDS)]
        to = ["--coordinator", self.coordinator.url, "--out", str(out or self.out)]
        return self.start("client", ["shardcast", "get", str(self.version), *to, *given], ailment)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def num_fetched(self) -> int:
        """Shards that the client at work has checked and written."""
        listed = self.out / f".v{self.version}.staging" / CHECKED_FILE
        return len(listed.read_bytes().splitlines()) if listed.exists() else 0

    def in_the_midst(self) -> None:
        """Wait for some part of the fetch, or its end."""
        wanted, process = self.chance.randrange(1, NUM_SHARDS), self.processes["client"]
        wait_until(lambda: self.num_fetched() >= wanted or not process.is_alive(), "the client gets on")

    def outcome(self, out: Path | None = None) -> tuple[str, str]:
        """What the client that was begun came to, and what is wrong with that."""
        process = self.processes.pop("client")
        process.join(STUCK_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            return "stuck", f"no end within {STUCK_SECONDS:.0f} s"
        return self.judge(process.exitcode, out or self.out)

    def judge(self, code: int | None, out: Path) -> tuple[str, str]:
        folder, said = out / f"v{self.version}", self.said("client")
        there = folder.exists()
        is_right = there and is_intact(folder, self.manifests[self.version].manifest_hash)
        if there and not (is_right and (folder / MODEL).read_bytes() == self._bytes()):
            return "wrong", "a version that isn't the one that was published"
        if code == 0:
            return ("right", "") if there else ("nothing", "a success that left nothing")
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        if not errors or "Traceback" in said:
            return f"exit {code}", f"no clear error: {said[-300:]}"
        return errors[-1], "a version beside an error" if there else ""

    def _bytes(self) -> bytes:
        return (self.folder / "checkpoint" / MODEL).read_bytes()

    def mend(self) -> None:
        """Whoever was killed runs again, what was fetched is gone, and all releases are the trainer's."""
        for name in ("origin", *RELAYS):
            if name not in self.processes:
                self.start_server(name)
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=1.0).status_code == 200
    except httpx.TransportError:
        return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Raises TimeoutError."""
    ends, tick = time.monotonic() + STUCK_SECONDS, threading.Event()
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"it never came to this: {what}")
        tick.wait(LOOK_SECONDS)


@contextmanager
def world(folder: Path, seed: int) -> Iterator[World]:
    trainer, domain = Signer(b"\1" * 32), SigningDomain(31337, "0x" + "11" * 20, "0x" + "22" * 32)
    with ExitStack() as stack:
        names = ("origin", *RELAYS)
        ports = dict(zip(names, stack.enter_context(Ports(len(names))).numbers, strict=True))
        urls = [f"http://127.0.0.1:{ports[name]}" for name in RELAYS]
        coordinator = stack.enter_context(Coordinator(trainer, domain, urls))
        made = World(folder, random.Random(seed), coordinator, ports)
        stack.callback(made.end)
        made.mend()
        yield made


Fault = Callable[[World], tuple[str, str]]


def killed_origin(world: World) -> tuple[str, str]:
    """While relays pull from it; it comes back."""
    world.publish()
    world.announce()
    world.fetch()
    world.in_the_midst()
    world.kill("origin")
    world.start_server("origin")
    return world.outcome()


def killed_while_publishing(world: World) -> tuple[str, str]:
    """The trainer's process, at any shard; it publishes again, and only then is there a version."""
    world.publish()
    shutil.rmtree(world.shards("origin").parent)
    arguments = (world.folder / "checkpoint", world.folder / "origin", world.version)
    publisher, wanted = FORKS.Process(target=publish_to, args=arguments), world.chance.randrange(NUM_SHARDS)
    publisher.start()
    shards = world.shards("origin")
    wait_until(lambda: shards.exists() and len(list(shards.iterdir())) >= wanted, "shards are published")
    publisher.kill()
    publisher.join()
    world.fetch()
    publish_to(*arguments)
    world.announce()
    found, finding = world.outcome()
    if found != "right" and not finding:  # it asked before there was a release
        world.fetch()
        return world.outcome()
    return found, finding


def killed_relay(world: World) -> tuple[str, str]:
    """In the midst of a fetch; it stays dead."""
    world.publish()
    world.announce()
    world.fetch()
    world.in_the_midst()
    world.kill(world.chance.choice(RELAYS))
    return world.outcome()


def killed_relay_that_comes_back(world: World) -> tuple[str, str]:
    """It hashes what it has, and goes on."""
    world.publish()
    world.announce()
    world.fetch()
    world.in_the_midst()
    name = world.chance.choice(RELAYS)
    world.kill(name)
    world.start_server(name)
    found = world.outcome()
    world.await_relays()
    return found


def killed_relays(world: World) -> tuple[str, str]:
    """All of them, for good."""
    world.publish()
    world.announce()
    world.await_relays()
    world.fetch()
    world.in_the_midst()
    for name in RELAYS:
        world.kill(name)
    return world.outcome()


def killed_client(world: World) -> tuple[str, str]:
    """It is run again, and goes on with what it has."""
    world.publish()
    world.announce()
    world.fetch()
    world.in_the_midst()
    world.kill("client")
    world.fetch()
    return world.outcome()


def spoil(path: Path, chance: random.Random) -> None:
    """A shard as a bad disk leaves it, or a liar: cut short, longer, empty, of other bytes, gone."""
    data = path.read_bytes()
    place = chance.randrange(len(data))
    ways = {
        "cut": data[:place],
        "long": data + b"x",
        "empty": b"",
        "flipped": data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :],
    }
    way = chance.choice([*ways, "gone"])
    path.unlink()
    if way != "gone":
        path.write_bytes(ways[way])


def bad_shards_at_one_relay(world: World) -> tuple[str, str]:
    world.publish()
    world.announce()
    world.await_relays()
    name = world.chance.choice(RELAYS)
    for number in world.chance.sample(range(NUM_SHARDS), world.chance.randrange(1, NUM_SHARDS)):
        spoil(world.shards(name) / str(number), world.chance)
    world.fetch()
    return world.outcome()


def a_bad_shard_at_all_relays(world: World) -> tuple[str, str]:
    world.publish()
    world.announce()
    world.await_relays()
    number = world.chance.randrange(NUM_SHARDS)
    for name in RELAYS:
        spoil(world.shards(name) / str(number), world.chance)
    world.fetch()
    return world.outcome()


def bad_manifest_at_one_relay(world: World) -> tuple[str, str]:
    """Another version's, validly made, or no JSON at all."""
    _manifests(world, [world.chance.choice(RELAYS)])
    return world.outcome()


def bad_manifest_at_all_relays(world: World) -> tuple[str, str]:
    _manifests(world, RELAYS)
    return world.outcome()


def _manifests(world: World, names: Sequence[str]) -> None:
    world.publish()
    older = world.manifests[world.version].to_bytes()
    world.publish()
    world.announce()
    world.await_relays()
    wrong = world.chance.choice([older, older[:-10], b"", b"[]", world.chance.randbytes(1000)])
    for name in names:
        manifest = world.shards(name).parent / "manifest.json"
        wait_until(manifest.exists, "the relay has the manifest")
        manifest.unlink()
        manifest.write_bytes(wrong)
    world.fetch()


def wrong_signature(world: World) -> tuple[str, str]:
    """Of a key that isn't the trainer's, over what is right otherwise."""
    world.publish()
    manifest = world.manifests[world.version]
    world.coordinator.releases[world.version] = world.coordinator.signed(manifest, Signer(b"\2" * 32))
    world.fetch()
    return world.outcome()


def changed_release(world: World) -> tuple[str, str]:
    """The trainer's signature over another hash."""
    world.publish()
    right = world.coordinator.signed(world.manifests[world.version])
    other = right.message.model_copy(update={"manifest_hash": hex0x(world.chance.randbytes(32))})
    world.coordinator.releases[world.version] = right.model_copy(update={"message": other})
    world.fetch()
    return world.outcome()


def replayed_release(world: World) -> tuple[str, str]:
    """The trainer's word on the version before, in place of this one's."""
    world.publish()
    older = world.coordinator.signed(world.manifests[world.version])
    world.announce()
    world.publish()
    world.coordinator.releases[world.version] = older
    world.fetch()
    return world.outcome()


def full_disk_at_a_client(world: World) -> tuple[str, str]:
    """It says so; with room it goes on."""
    world.publish()
    world.announce()
    world.fetch(Ailment(most_file_bytes=world.chance.randrange(1, NUM_BYTES)))
    found, finding = world.outcome()
    if finding or found == "right":
        return found, finding or "a file larger than the disk"
    world.fetch()
    later, finding = world.outcome()
    return (found, finding) if later == "right" else (later, finding or "it doesn't go on with room")


def full_disk_at_a_relay(world: World) -> tuple[str, str]:
    """It can't keep a shard, and serves what it has; the other one has all."""
    name = world.chance.choice(RELAYS)
    world.kill(name)
    world.start_server(name, Ailment(most_file_bytes=world.chance.randrange(1, SHARD_BYTES)))
    world.publish()
    world.announce()
    world.fetch()
    found = world.outcome()
    world.kill(name)
    return found


def skewed_clock(world: World) -> tuple[str, str]:
    """Of the client, a relay or the origin: years off, and jumping."""
    name = world.chance.choice(["client", "origin", *RELAYS])
    ailment = Ailment(clock_skew_seconds=world.chance.choice([-1.0, 1.0]) * world.chance.choice([3e3, 1e5, 3e8]))
    if name != "client":
        world.kill(name)
        world.start_server(name, ailment)
    world.publish()
    world.announce()
    world.fetch(ailment if name == "client" else HEALTHY)
    found = world.outcome()
    if name != "client":
        world.kill(name)
    return found


FAULTS: dict[str, tuple[Fault, Expected]] = {
    "kill -9 of the origin": (killed_origin, RIGHT),
    "kill -9 of who publishes": (killed_while_publishing, RIGHT),
    "kill -9 of a relay": (killed_relay, RIGHT),
    "kill -9 of a relay, which comes back": (killed_relay_that_comes_back, RIGHT),
    "kill -9 of all relays": (killed_relays, EITHER),
    "kill -9 of the client, which comes back": (killed_client, RIGHT),
    "spoilt shards at one relay": (bad_shards_at_one_relay, RIGHT),
    "a spoilt shard at all relays": (a_bad_shard_at_all_relays, ERROR),
    "a wrong manifest at one relay": (bad_manifest_at_one_relay, RIGHT),
    "a wrong manifest at all relays": (bad_manifest_at_all_relays, ERROR),
    "a release of another key": (wrong_signature, ERROR),
    "a release that was changed": (changed_release, ERROR),
    "a release that is replayed": (replayed_release, ERROR),
    "a full disk at the client": (full_disk_at_a_client, ERROR),
    "a full disk at a relay": (full_disk_at_a_relay, RIGHT),
    "a clock that is wrong": (skewed_clock, RIGHT),
}


def run_faults(folder: Path, seed: int, num_trials: int) -> list[Trial]:
    """So many faults, each kind about as often, in an order that the seed gives."""
    trials: list[Trial] = []
    with world(folder, seed) as made:
        order: list[str] = []
        while len(order) < num_trials:
            order += made.chance.sample(list(FAULTS), len(FAULTS))
        for number, kind in enumerate(order[:num_trials]):
            fault, expected = FAULTS[kind]
            started = time.monotonic()
            found, finding = fault(made)
            is_expected = expected.right if found == "right" else expected.error
            if not finding and not is_expected:
                finding = f"{found}, where that isn't expected"
            trials.append(Trial(number, kind, found, time.monotonic() - started, finding))
            made.coordinator.releases.clear()
            made.mend()
    return trials


def table(trials: Sequence[Trial]) -> str:
    """By kind: how often, how often with the right bytes or an error, and what the errors were."""
    by_kind = defaultdict(list)
    for trial in trials:
        by_kind[trial.kind].append(trial)
    lines = [f"{'fault':42} {'times':>5} {'right':>5} {'error':>5} {'slowest':>8}  errors"]
    for kind, some in by_kind.items():
        right = sum(trial.found == "right" for trial in some)
        errors = Counter(trial.found.removeprefix("error: ") for trial in some if trial.found != "right")
        said = "; ".join(f"{error[:60]} ({count})" for error, count in errors.most_common(2))
        slowest = max(trial.seconds for trial in some)
        lines.append(f"{kind:42} {len(some):5} {right:5} {len(some) - right:5} {slowest:6.1f} s  {said}")
    return "\n".join(lines)
