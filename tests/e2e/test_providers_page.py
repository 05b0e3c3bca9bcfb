"""docs/providers.md: from nothing to accepted work on a running testnet, by the page's own six commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.waiting import Waiting

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "providers.md"
PROOFPOOL = [sys.executable, "-m", "protocol.cli"]
COORDINATOR = re.compile(r"coordinator +(http\S+)")
NODE = re.compile(r"chain +.*(http\S+)")
ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("e2e")]


def page() -> list[str]:
    """The page's first block."""
    return [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    ")][:6]


def following(said: str) -> list[str]:
    """The commands that `worker init` prints as those that come next."""
    return [line.strip() for line in said.splitlines() if line.strip().startswith("proofpool ")]


@dataclass
class Newcomer:
    """A machine with a checkout, and nothing else of proofpool: no key, no configuration."""

    folder: Path
    names: dict[str, str]
    metrics_address: str

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
        keys = {"PROOFPOOL_KEYS": str(self.folder / "keys"), "PROOFPOOL_PASSWORD": "a word of mine"}
        return {**kept, **keys, "OMP_NUM_THREADS": "1", "PROOFPOOL_WORKER_METRICS_ADDRESS": self.metrics_address}

    def words(self, line: str) -> list[str]:
        """A line of the page as it is typed, with what earlier lines have printed in the place of names."""
        for name, value in self.names.items():
            line = re.sub(rf"\b{name}\b", value, line)
        command, *words = shlex.split(line)
        assert command == "proofpool"
        return [*PROOFPOOL, *words]

    def does(self, line: str) -> str:
        done = subprocess.run(
            self.words(line), cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, line: str) -> Iterator[subprocess.Popen[bytes]]:
        """In the background, as in another terminal; SIGTERM ends it."""
        log = (self.folder / "log").open("wb")
        with log, subprocess.Popen(self.words(line), cwd=self.folder, env=self.environment, stderr=log) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=120)


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    """Beside a testnet that runs, whose banner is all that is known of it."""
    command = [*PROOFPOOL, "testnet", "up", "--steps", "500", "--workers", "1", "--cheat", "none"]
    with subprocess.Popen([*command, "--run-dir", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True) as testnet:
        assert testnet.stderr is not None
        try:
            chain = next(match for line in testnet.stderr if (match := NODE.search(line)))
            coordinator = next(match for line in testnet.stderr if (match := COORDINATOR.search(line)))
            drain = threading.Thread(target=testnet.stderr.read)
            drain.start()
            with closing(CoordinatorClient(coordinator[1])) as client:
                assert Waiting(SystemClock(), threading.Event(), 0.5).until("the pool", lambda: client.pool())
            machine = tmp_path / "machine"
            machine.mkdir()
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            yield Newcomer(machine, {"URL": coordinator[1], "NODE": chain[1]}, f"127.0.0.1:{port}")
        finally:
            testnet.send_signal(signal.SIGTERM)
            testnet.wait(timeout=120)
        drain.join()


def test_six_commands_lead_to_accepted_work(newcomer: Newcomer) -> None:
    install, key, init, faucet, register, run = page()
    assert install == "pip install 'proofpool[worker]'"
    newcomer.names["ADDRESS"] = ADDRESS.findall(newcomer.does(key))[0]
    said = newcomer.does(init)
    newcomer.names["LEDGER"] = re.findall(r"Ledger (0x[0-9a-f]{40})", said)[0]
    for line in (faucet, register, run):
        assert [*PROOFPOOL, *newcomer.words(line)[3:]] in [newcomer.words(one) for one in following(said)], line
    newcomer.does(faucet)
    newcomer.does(register)
    node = re.findall(r"node (0x[0-9a-f]{40})", said)[0]
    with newcomer.running(run) as worker, closing(CoordinatorClient(newcomer.names["URL"])) as client:

        def accepted() -> bool | None:
            assert worker.poll() is None, (newcomer.folder / "log").read_text()
            return bool(client.submissions(node=node, standing="accepted")) or None

        assert Waiting(SystemClock(), threading.Event(), 0.5).until("accepted work", accepted)
        status = json.loads(newcomer.does("proofpool worker status --config worker.toml --json"))
        assert status["verdict"] == "EARNING" and status["process"]["is_running"] and status["num_accepted"] > 0
        health = httpx.get(f"http://{newcomer.metrics_address}/healthz")
        assert (health.status_code, health.json()["phase"]) == (200, "working")
        metrics = httpx.get(f"http://{newcomer.metrics_address}/metrics").text
        assert "proofpool_worker_tokens_per_second" in metrics and "proofpool_worker_answered_time_seconds" in metrics
        assert "✗" not in newcomer.does("proofpool worker doctor --config worker.toml")
        accepted_id = next(row["submission_id"] for row in status["recent"] if row["standing"] == "accepted")
        explained = newcomer.does(f"proofpool worker explain {accepted_id} --config worker.toml")
        assert explained.startswith("Accepted: submission 0x")
    assert worker.returncode == 0, (newcomer.folder / "log").read_text()
    assert "a word of mine" not in (newcomer.folder / "log").read_text()
