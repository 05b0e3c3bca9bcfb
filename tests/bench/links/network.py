"""A network of shaped links: hosts in namespaces of their own, near ones and far ones, and the lag between the two.

    far hosts (clients) ─ links ─ far switch ─ lag ─ near switch ─ links ─ near hosts (origin, relays)

In: each host's rate. Out: namespaces, and the address of each host; a link is shaped in both directions (`tbf`), its
queue holds what it sends in 50 ms. Needs root, `ip`, `tc` and TUN devices; nothing of it is connected to the machine's
own network, and all of it goes when the network is closed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.bench.links.lag import DEVICE
from tests.bench.links.namespace import ip, own, remove, sweep

ROOT = Path(__file__).resolve().parents[3]
QUEUE_MILLISECONDS = 50
BURST_BYTES = 128 << 10
"""A large segment passes in one piece."""
PACKET_BYTES = 9000
"""Large ones: the lag is written in Python, and handles each."""
NET = {"near": "10.77.1", "far": "10.77.2"}
OTHER = {"near": "far", "far": "near"}


def trouble() -> str:
    """Why no such network can be made here; empty where it can."""
    if os.geteuid() or not Path("/dev/net/tun").exists():
        return "shaped links need root and TUN devices"
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        return f"shaped links need {' and '.join(missing)}"
    try:
        with Network({"near0": 10.0}, {"far0": 10.0}, 0.0):
            return ""
    except (subprocess.CalledProcessError, OSError) as error:
        return f"shaped links can't be made: {getattr(error, 'stderr', '') or error}"


class Network:
    """Example: `with Network({"relay0": 300.0}, {"client0": 100.0}, 0.02) as network: network.address("relay0")`."""

    def __init__(self, near: Mapping[str, float], far: Mapping[str, float], lag_seconds: float) -> None:
        """Rates in Mbit/s; `lag_seconds` one way, between a near host and a far one."""
        self._sides = {"near": dict(near), "far": dict(far)}
        self._lag_seconds = lag_seconds
        self.lag_process = 0
        """Its id."""
        self._stack = ExitStack()

    def namespace(self, host: str) -> str:
        return own(host)

    def address(self, host: str) -> str:
        side = "near" if host in self._sides["near"] else "far"
        return f"{NET[side]}.{2 + list(self._sides[side]).index(host)}"

    def lose(self, host: str) -> None:
        """What is sent to a host is lost from now on, and nobody says so."""
        side = "near" if host in self._sides["near"] else "far"
        nobody = f"{self.address(host)} lladdr 02:00:00:00:00:01 dev switch nud permanent"
        ip(f"neigh replace {nobody}", namespace=own(side))

    def __enter__(self) -> Self:
        sweep()
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def _build(self) -> None:
        for side in self._sides:
            self._switch(side)
        for side, hosts in self._sides.items():
            for host, mbit in hosts.items():
                self._host(side, host, mbit)
        command = [sys.executable, "-m", "tests.bench.links.lag", own("near"), own("far"), str(self._lag_seconds)]
        lag = self._stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self._stack.callback(lag.kill)
        self.lag_process = lag.pid
        if lag.stdout is None or lag.stdout.readline() != "ready\n":
            raise OSError("the lag didn't start")
        for side, other in OTHER.items():
            lines = (
                f"link set {DEVICE} up mtu {PACKET_BYTES} txqueuelen 20000",
                f"route add {NET[other]}.0/24 dev {DEVICE}",
            )
            ip(*lines, namespace=own(side))

    def _made(self, name: str) -> str:
        self._stack.callback(remove, [own(name)])
        ip(f"netns add {own(name)}")
        return own(name)

    def _switch(self, side: str) -> None:
        name = self._made(side)
        lines = (
            "link set lo up",
            f"link add switch mtu {PACKET_BYTES} type bridge",
            f"addr add {NET[side]}.1/24 dev switch",
        )
        ip(*lines, "link set switch up", namespace=name)
        subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)

    def _host(self, side: str, host: str, mbit: float) -> None:
        """Its line, whose rate holds at either end for what is sent there."""
        name, port = self._made(host), f"to-{host}"[:15]
        ip(f"link add line netns {name} type veth peer name {port} netns {own(side)}")
        ip(f"link set {port} mtu {PACKET_BYTES}", namespace=own(side))
        lines = ("link set lo up", f"addr add {self.address(host)}/24 dev line", f"link set line mtu {PACKET_BYTES} up")
        ip(*lines, f"route add default via {NET[side]}.1", namespace=name)
        ip(f"link set {port} master switch", f"link set {port} up", namespace=own(side))
        for where, device in ((name, "line"), (own(side), port)):
            shape = f"tbf rate {mbit}mbit burst {BURST_BYTES} latency {QUEUE_MILLISECONDS}ms"
            ip(f"qdisc add dev {device} root {shape}", namespace=where, program="tc")
