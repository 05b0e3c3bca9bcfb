"""Nodes as processes: found, started, ended, and never left behind."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from protocol.clock import SystemClock
from protocol.errors import ChainError
from testnet.chain import anvil
from testnet.chain.process import NodeProcess, python_environment

LISTENER = "import signal; print('listening on 127.0.0.1:1', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + LISTENER
OWNER = f"""
import pathlib, sys, time
from protocol.clock import SystemClock
from testnet.chain.process import NodeProcess
node = NodeProcess("x", [sys.executable, "-c", {LISTENER!r}], pathlib.Path(sys.argv[1]), SystemClock())
print(node.pid, flush=True)
time.sleep(60)
"""


def start(code: str, folder: Path) -> NodeProcess:
    return NodeProcess("x", [sys.executable, "-c", code], folder / "x.log", SystemClock())


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits for its parent doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_is_ready_when_it_says_where_it_listens(tmp_path: Path) -> None:
    with start(LISTENER, tmp_path) as node:
        assert (node.url, node.is_running()) == ("http://127.0.0.1:1", True)
    assert not is_alive(node.pid)
    node.stop()


def test_a_process_that_ends_at_once_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="ended with code 3.*no room"):
        start("print('starting'); print('no room'); raise SystemExit(3)", tmp_path)


def test_a_process_that_ignores_the_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testnet.chain.process.STOP_SECONDS", 0.1)
    node = start(STUBBORN, tmp_path)
    node.stop()
    assert not is_alive(node.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_node_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "x.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=python_environment()) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        os.kill(owner.pid, signal.SIGKILL)
    clock, never = SystemClock(), threading.Event()
    deadline = clock.now() + 20
    while is_alive(pid) and clock.now() < deadline:
        clock.wait(never, 0.01)
    assert not is_alive(pid)


def make_binary(path: Path, head: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"rest")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("head", "is_found"), [(b"\x7fELF", True), (b"#!/usr/bin/env node\n", False)])
def test_only_a_native_anvil_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, is_found: bool
) -> None:
    on_path = make_binary(tmp_path / "bin" / "anvil", head)
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr("contracts.__file__", str(tmp_path / "contracts" / "__init__.py"))
    assert anvil.find_anvil() == (on_path if is_found else None)


def test_the_contracts_own_anvil_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "contracts" / "node_modules" / "@foundry-rs" / "anvil-linux-amd64" / "bin"
    own = make_binary(packages / "anvil", b"\x7fELF")
    monkeypatch.setenv("PATH", str(make_binary(tmp_path / "bin" / "anvil", b"\x7fELF").parent))
    monkeypatch.setattr("contracts.__file__", str(tmp_path / "contracts" / "__init__.py"))
    assert anvil.find_anvil() == own
