"""A delivery: a file at an origin or at relays, clients that begin together, and the time until the last one has it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from protocol.shardcast.manifest import Manifest, version_path
from protocol.shardcast.origin import publish
from protocol.wire import WeightsRelease
from tests.bench.links.member import PORT, Got, Member, client, forward, member, serve
from tests.bench.links.network import Network

MODEL = "model.safetensors"
CLIENT_MBIT, RELAY_MBIT, ORIGIN_MBIT = 100.0, 300.0, 200.0
LAG_SECONDS = 0.02
"""One way."""


@dataclass(frozen=True)
class Delivery:
    """What came of it."""

    got: tuple[Got, ...]
    num_bytes: int

    @property
    def seconds(self) -> float:
        """Until the last client had it."""
        return max(one.seconds for one in self.got)

    @property
    def cpu_seconds_per_gb(self) -> float:
        return sum(one.cpu_seconds for one in self.got) / len(self.got) / self.num_bytes * 1e9

    @property
    def faults(self) -> list[str]:
        return [one.fault or "wrong bytes" for one in self.got if not one.is_right]


@dataclass
class Scene:
    """Example: `with scene(…) as made: made.serve("relay0"); made.clients(8, ["relay0"]); print(made.deliver())`."""

    network: Network
    folder: Path
    manifest: Manifest
    stack: ExitStack
    members: dict[str, Member] = field(default_factory=dict)
    waiting: list[Member] = field(default_factory=list)
    """Who begins when the clients do."""

    @property
    def release(self) -> WeightsRelease:
        one = self.manifest
        return WeightsRelease(pool_id=one.pool_id, policy_version=one.policy_version, manifest_hash=one.manifest_hash)

    def url(self, host: str) -> str:
        return f"http://{self.network.address(host)}:{PORT}"

    def serve(self, host: str, root: Path | None = None) -> None:
        """A host that has everything, or what is in `root`."""
        self._add(host, serve, root or self.folder / "origin")

    def forward(self, host: str, upstreams: Sequence[str], peers: Sequence[str] = ()) -> None:
        """A relay that has nothing yet; `peers`, itself among them, share out what upstreams send."""
        urls, others = [self.url(name) for name in upstreams], [self.url(name) for name in peers]
        work = (self.folder / host, self.url(host), urls, others, self.release)
        self.waiting.append(self._add(host, forward, *work))

    def client(self, host: str, relays: Sequence[str]) -> None:
        urls, model = [self.url(name) for name in relays], self.folder / "checkpoint" / MODEL
        self.waiting.append(self._add(host, client, urls, self.release, self.folder / host, model))

    def deliver(self, then: Callable[[], None] = lambda: None) -> Delivery:
        """Let all begin, and wait for the clients."""
        for one in self.waiting:
            one.tell("go")
        then()
        got = tuple(one.hear() for name, one in self.members.items() if name.startswith("client"))
        return Delivery(got, self.manifest.num_bytes)

    def flip(self, host: str) -> None:
        """Turn a bit of each shard that a host serves, which has them from now on in a folder of its own."""
        self.members[host].kill()
        root = self.folder / f"{host}-flipped"
        shutil.copytree(self.folder / "origin", root)
        for path in (root / version_path(self.manifest.policy_version) / "shards").iterdir():
            with path.open("r+b") as file:
                first = file.read(1)[0]
                file.seek(0)
                file.write(bytes([first ^ 1]))
        self.serve(host, root)

    def sent(self, host: str) -> int:
        """Bytes that a server has sent, which ends by it."""
        self.members[host].tell("enough")
        return int(self.members[host].hear()[1])

    def _add(self, host: str, work: Callable[..., None], *arguments: object) -> Member:
        one = self.stack.enter_context(member(host, self.network.namespace(host), work, *arguments))
        assert one.hear() == "ready"
        self.members[host] = one
        return one


@contextmanager
def scene(
    near: Mapping[str, float], num_clients: int, num_bytes: int, shard_bytes: int, scale: float = 1.0
) -> Iterator[Scene]:
    """The network, all rates times `scale`, and a published file; in memory, so that no disk is measured."""
    far = {f"client{number}": scale * CLIENT_MBIT for number in range(num_clients)}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        (folder / "checkpoint").mkdir()
        (folder / "checkpoint" / MODEL).write_bytes(os.urandom(num_bytes))
        manifest = publish(folder / "checkpoint", folder / "origin", 1, 0, shard_bytes)
        network = stack.enter_context(Network({host: scale * rate for host, rate in near.items()}, far, LAG_SECONDS))
        yield Scene(network, folder, manifest, stack)


def bound_seconds(num_bytes: int, num_clients: int, relays_mbit: float, origin_mbit: float = ORIGIN_MBIT) -> float:
    """No delivery is faster: a client's link, the origin's, and those of all relays together."""
    bits = 8 * num_bytes
    return max(bits / CLIENT_MBIT, bits / origin_mbit, num_clients * bits / relays_mbit) / 1e6
