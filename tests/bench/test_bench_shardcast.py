"""SHARDCAST against the public package `shardcast` 0.3.2: the same file, one server, one client and eight, on loopback.

The package runs in a Python of its own (`PROOFPOOL_SHARDCAST_PYTHON`, else a venv in pytest's cache, made once from a
package registry); it needs `wget`. Both sides write into memory (/dev/shm), so that no disk is measured; turns
alternate, and medians are compared. Processor seconds are of the server and all clients, per GB delivered. A third side
does what no client can do without (`shardcast/bound.py`): what it reaches is what the machine allows.

    python -m pytest -m bench -s tests/bench/test_bench_shardcast.py
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testnet.ports import Ports

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NUM_BYTES = 256 << 20
NUM_TURNS = 3
GB = 1e9
LEAST = ((1, 3.0), (8, 5.0))
"""Times the package's throughput that are aimed at. Eight clients and a server keep two cores busy: there the machine
may not allow as many."""


@dataclass(frozen=True)
class Side:
    """How one of the two is run."""

    name: str
    command: list[str]


@dataclass(frozen=True)
class Turn:
    """`num_clients` downloads at once: bytes delivered a second, and processor seconds per GB."""

    bytes_per_second: float
    client_seconds_per_gb: float
    server_seconds_per_gb: float


@pytest.fixture(scope="module")
def shardcast_python(request: pytest.FixtureRequest) -> Path:
    """A Python that has the package."""
    if named := os.environ.get("PROOFPOOL_SHARDCAST_PYTHON"):
        return Path(named)
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("shardcast") / "0.3.2"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "shardcast==0.3.2"], check=True)
        (folder / "complete").touch()
    return python


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder that is in no disk's way."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def say(child: subprocess.Popen[str]) -> Any:
    """What a child's next line is."""
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


def turn(side: Side, memory: Path, file: Path, num_clients: int) -> Turn:
    """One server, so many clients that start together, each with a folder of its own; all files are compared."""
    with ExitStack() as stack:
        with Ports(1) as ports:
            (port,) = ports.numbers
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))

        def child(*arguments: str) -> subprocess.Popen[str]:
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            command, pipe = [*side.command, *arguments], subprocess.PIPE
            started = subprocess.Popen(command, cwd=place, env=environment, stdin=pipe, stdout=pipe, text=True)
            stack.enter_context(started)
            stack.callback(started.kill)  # before it is waited for
            return started

        server = child("serve", str(place / "origin"), str(file), str(port))
        version = say(server)["version"]
        clients = []
        for number in range(num_clients):  # the package's clients use the same temporary file while they start
            clients.append(child("fetch", str(place / f"got{number}"), str(port), version))
            assert say(clients[-1])["ready"]
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        found = [say(client) for client in clients]
        for one in found:
            subprocess.run(["cmp", file, one["path"]], check=True)
        assert server.stdin is not None and server.stdout is not None
        server.stdin.close()
        server_seconds = json.loads(server.stdout.readline())["cpu_seconds"]
    delivered = num_clients * NUM_BYTES
    slowest = max(one["seconds"] for one in found)
    used = sum(one["cpu_seconds"] for one in found)
    return Turn(delivered / slowest, used / delivered * GB, server_seconds / delivered * GB)


@pytest.mark.bench
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("num_clients", "least"), LEAST)
def test_against_the_public_package(shardcast_python: Path, memory: Path, num_clients: int, least: float) -> None:
    file = memory / "checkpoint" / "model.safetensors"
    file.parent.mkdir()
    file.write_bytes(os.urandom(NUM_BYTES))
    theirs = Side("shardcast 0.3.2", [str(shardcast_python), str(HERE / "shardcast" / "theirs.py")])
    ours = Side("proofpool", [sys.executable, "-m", "tests.bench.shardcast.ours"])
    bound = Side("receive, hash, write", [sys.executable, "-m", "tests.bench.shardcast.bound"])
    turns: dict[str, list[Turn]] = {theirs.name: [], ours.name: [], bound.name: []}
    for _ in range(NUM_TURNS):
        for side in (theirs, ours, bound):
            turns[side.name].append(turn(side, memory, file, num_clients))
    print()
    rates, used = {}, {}
    for name, found in turns.items():
        rates[name] = statistics.median(one.bytes_per_second for one in found)
        client = statistics.median(one.client_seconds_per_gb for one in found)
        server = statistics.median(one.server_seconds_per_gb for one in found)
        used[name] = client + server
        print(
            f"{num_clients} clients, {name}: {rates[name] / 1e6:.0f} MB/s in all, processor seconds per GB: "
            f"clients {client:.2f}, server {server:.2f}"
        )
    ratio = rates[ours.name] / rates[theirs.name]
    print(
        f"{num_clients} clients: {ratio:.1f} times, {used[theirs.name] / used[ours.name]:.1f} by processor seconds; "
        f"the bound is {rates[bound.name] / rates[theirs.name]:.1f} times, {used[theirs.name] / used[bound.name]:.1f}"
    )
    assert ratio >= least
