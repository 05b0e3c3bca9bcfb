"""SHARDCAST over shaped links, small: two clients, two relays, a lag; what the links allow, and a relay that is lost.

The figures are those of `tests/bench/links`. Skipped where no network can be made: it takes root, `ip`, `tc`, TUN.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from protocol.shardcast.line import LINE_TIMEOUT_SECONDS
from tests.bench.links.namespace import FOLDER, PREFIX, sweep
from tests.bench.links.network import ROOT, trouble
from tests.bench.links.scene import CLIENT_MBIT, ORIGIN_MBIT, RELAY_MBIT, Scene, scene

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NUM_BYTES, SHARD_BYTES = 8 << 20, 256 << 10
RELAYS = ("relay0", "relay1")
NEAR = {"origin": ORIGIN_MBIT} | dict.fromkeys(RELAYS, RELAY_MBIT)


@pytest.fixture(autouse=True, scope="module")
def possible() -> None:
    if why := trouble():
        pytest.skip(why)


def namespaces() -> set[str]:
    return {path.name for path in FOLDER.glob(f"{PREFIX}-*")} if FOLDER.exists() else set()


def with_clients(made: Scene) -> Scene:
    for client in ("client0", "client1"):
        made.client(client, RELAYS)
    return made


def test_relays_fill_and_serve_over_shaped_links_and_nothing_is_left_of_these() -> None:
    before = namespaces()
    with scene(NEAR, 2, NUM_BYTES, SHARD_BYTES) as made:
        made.serve("origin")
        for relay in RELAYS:
            made.forward(relay, ["origin"], RELAYS)
        found = with_clients(made).deliver()
        assert namespaces() - before
        assert made.sent("origin") < 2 * NUM_BYTES, "relays exchange what each asked for"
    assert found.faults == []
    least = NUM_BYTES * 8e-6 / CLIENT_MBIT
    assert found.seconds >= 0.9 * least, "no client is faster than its link, but for what its queue holds"
    assert namespaces() == before


@pytest.mark.parametrize("fault", ["dead", "lost", "flipped"])
def test_a_bad_relay_costs_no_timeout_and_no_wrong_byte(fault: str) -> None:
    with scene(NEAR, 2, NUM_BYTES, SHARD_BYTES) as made:
        for relay in RELAYS:
            made.serve(relay)
        if fault == "dead":
            made.members["relay1"].kill()
        elif fault == "lost":
            made.network.lose("relay1")
        else:
            made.flip("relay1")
        found = with_clients(made).deliver()
        bad = made.url("relay1")
    assert found.faults == []
    assert found.seconds < LINE_TIMEOUT_SECONDS / 2
    brought = [relay.num_bytes for one in found.got for relay in one.relays if relay.url == bad]
    assert fault == "flipped" or brought == [0, 0]


def is_running(process: Path) -> bool:
    """Whether it has a command line, which one that has ended and was waited for by nobody hasn't."""
    try:
        return bool((process / "cmdline").read_bytes())
    except FileNotFoundError:
        return False


KILLED = """
import sys, time
from tests.bench.links.network import Network
with Network({"near0": 10.0}, {"far0": 10.0}, 0.0) as network:
    print(network.lag_process, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_leaves_is_swept(tmp_path: Path) -> None:
    before = namespaces()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command, pipe = [sys.executable, "-c", KILLED], subprocess.PIPE
    with subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        lag = Path("/proc", child.stdout.readline().strip())
        assert is_running(lag)
        assert namespaces() - before, "and a live process's are left alone"
        sweep()
        assert namespaces() - before
        child.send_signal(signal.SIGKILL)
    sweep()
    assert namespaces() == before
    while is_running(lag):  # it ends with its parent; the test's timeout is for one that doesn't
        threading.Event().wait(0.01)
