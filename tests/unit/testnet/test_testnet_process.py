"""Child processes: logs, ends, and that none outlives its parent."""

from __future__ import annotations

import os
import signal
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
    wait_until(lambda: process.log.read_text() == "up\n")
    process.kill()
    assert not process.is_running()
    process.check()
    process.start()
    wait_until(lambda: process.log.read_text() == "up\nup\n")
    assert process.restarts == 1
    stop_all([process])
    assert not process.is_running()


def test_a_process_that_ends_by_itself_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    process = Process("broken", [sys.executable, "-c", "print('last words'); raise SystemExit(9)"], tmp_path / "log")
    process.start()
    wait_until(lambda: not process.is_running())
    with pytest.raises(ProofpoolError, match=r"exit code 9.*last words"):
        process.check()


def test_only_what_somebody_else_killed_is_revived(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEPER, tmp_path / "log")
    assert not process.revive()
    process.start()
    assert not process.revive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not process.is_running())
    assert process.revive()
    assert (process.is_running(), process.restarts) == (True, 1)
    process.kill()
    assert not process.revive()

    ended = Process("ended", [sys.executable, "-c", "raise SystemExit(1)"], tmp_path / "other")
    ended.start()
    wait_until(lambda: not ended.is_running())
    assert not ended.revive()


def test_a_process_that_is_killed_again_and_again_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testnet.process.MOST_RESTARTS", 0)
    process = Process("sleeper", SLEEPER, tmp_path / "log")
    process.start()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not process.is_running())
    with pytest.raises(ProofpoolError, match="killed again.*signal 9"):
        process.revive()


def test_an_error_in_three_lines_is_told_in_one(tmp_path: Path) -> None:
    words = "print('error: older'); print('error: no room'); print('  why: 0 bytes free'); print('  do:  make room')"
    process = Process("full", [sys.executable, "-c", f"{words}; raise SystemExit(1)"], tmp_path / "log")
    process.start()
    wait_until(lambda: not process.is_running())
    with pytest.raises(ProofpoolError) as error:
        process.check()
    assert error.value.why == "no room; why: 0 bytes free; do:  make room"
    assert str(tmp_path / "log") in error.value.todo


def test_a_process_that_may_finish_is_no_error_once_it_has(tmp_path: Path) -> None:
    for code in (0, 2):
        command = [sys.executable, "-c", f"raise SystemExit({code})"]
        done = Process("done", command, tmp_path / "log", may_finish=True)
        done.start()
        wait_until(lambda done=done: not done.is_running())  # type: ignore[misc]
        if code:
            with pytest.raises(ProofpoolError, match="log is empty"):
                done.check()
        else:
            done.check()


def test_a_process_is_asked_to_stop_once_however_often_one_asks(tmp_path: Path) -> None:
    code = (
        "import signal, time; asked = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
        "print('up', flush=True)\n"
        "while not asked: time.sleep(0.01)\n"
        "time.sleep(0.3); print(len(asked), flush=True)"
    )
    process = Process("patient", [sys.executable, "-c", code], tmp_path / "log")
    process.start()
    wait_until(lambda: process.log.read_text() == "up\n")
    for _ in range(3):
        process.ask_to_stop()
    process.stop()
    assert process.log.read_text() == "up\n1\n"


def test_ctrl_c_in_the_terminal_reaches_no_child(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEPER, tmp_path / "log")
    process.start()
    assert process.pid is not None
    assert os.getpgid(process.pid) != os.getpgid(0)
    process.kill()


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
