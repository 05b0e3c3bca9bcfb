"""Child processes: logs, ends, and that none outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocol.errors import ProofpoolError
from testnet.process import Process, stop_all

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def wait_until(condition: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.01)


def test_a_process_runs_is_killed_and_starts_again(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEPER, tmp_path / "log")
    process.start()
    assert process.is_running()
    process.kill()
    assert not process.is_running()
    process.start()
    wait_until(lambda: process.last_lines().count("up") >= 1)
    assert process.restarts == 1
    stop_all([process])
    assert not process.is_running()


def test_a_process_that_ends_by_itself_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    process = Process("broken", [sys.executable, "-c", "print('last words'); raise SystemExit(9)"], tmp_path / "log")
    process.start()
    wait_until(lambda: not process.is_running())
    with pytest.raises(ProofpoolError, match=r"exit code 9.*last words"):
        process.check()


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from testnet.process import Process\n"
        f"p = Process('s', {SLEEPER!r}, Path({str(tmp_path / 'log')!r})); p.start()\n"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not Path(f"/proc/{child}").exists() or "zombie" in Path(f"/proc/{child}/status").read_text())
    assert parent.returncode < 0
    assert os.getpid() != child
