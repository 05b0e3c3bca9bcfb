"""Pools: input and output of any size, calls, many at once, and machines that can't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.doctor import sandbox_findings
from protocol.errors import ConfigError, SandboxBroken
from protocol.sandbox import bubblewrap
from protocol.sandbox.bubblewrap import sandbox_fault
from protocol.sandbox.limits import MIB, Limits
from protocol.sandbox.pool import Pool, shared_pool
from protocol.sandbox.process import Job
from tests.sandboxes import require_sandbox
from tests.unit.protocol.sandbox.conftest import LIMITS, RunProgram

ECHO = "import sys\nsys.stdout.write(sys.stdin.read())"


def test_large_inputs_and_outputs_go_through(run: RunProgram) -> None:
    much = os.urandom(400_000).hex().encode()
    assert run(ECHO, much).stdout == much
    assert run("print('unread')", much).stdout == b"unread\n"
    assert run("def f(x): return [x, x]", call=("f", ["é" * 10_000])).returned.count(b"\\u00e9") == 20_000


@pytest.mark.parametrize(
    "read", ["input()", "open(0).readline().strip()", "__import__('os').read(0, 9).decode().strip()"]
)
def test_input_is_had_by_any_way_of_reading(run: RunProgram, read: str) -> None:
    assert run(f"print({read})", b"hello\n").stdout == b"hello\n"


@pytest.mark.parametrize(
    ("code", "name", "returned"),
    [
        ("def f(x): return x * 2", "f", b"6"),
        ("class Solution:\n  def f(self, x): return (x, None)", "f", b"[3, null]"),
        ("class Other:\n  def f(self, x): return x", "Other.f", b"3"),
        ("def f(x: List[int]) -> Optional[int]: return Counter([x])[x] + gcd(x, 9)", "f", b""),
        ("def f(x: List[int]) -> Optional[int]: return Counter([x])[x] + math.gcd(x, 9)", "f", b"4"),
        ("def f(x): return {1, 2}", "f", b""),
        ("def g(x): return x", "f", b""),
    ],
)
def test_functions_are_called_and_return_json(run: RunProgram, code: str, name: str, returned: bytes) -> None:
    tried = run(code, call=(name, [3]))
    assert tried.returned == returned
    assert (tried.exit_code == 0) == bool(returned)


def test_every_run_starts_afresh_and_does_the_same(pool: Pool) -> None:
    code = (
        "import os, random, sys\nprint(os.listdir('/tmp'), random.random(), random.Random().random(), os.urandom(2))\n"
    )
    code += "print({chr(97 + n) for n in range(9)}, __name__, sys.argv)\nopen('/tmp/x', 'w')\nimport math\nmath.pi = 3"
    runs = pool.run_all([Job(code)] * 6)
    assert len({run.stdout for run in runs}) == 1 and runs[0].exit_code == 0
    assert b"[] " in runs[0].stdout and b"__main__ ['answer.py']" in runs[0].stdout


def test_twice_the_memory_is_had_where_it_is_asked_for(pool: Pool) -> None:
    code = f"x = bytearray({LIMITS.memory_bytes})\nprint(len(x))"
    assert pool.run(Job(code)).exit_code == 1
    assert pool.run(Job(code, memory_factor=2)).exit_code == 0


def test_a_pool_leaves_nothing(tmp_path: Path) -> None:
    require_sandbox()
    before = len(list(Path("/proc/self/fd").iterdir()))
    pool = Pool(Limits(tmp_bytes=MIB), num_at_once=2)
    assert pool.run(Job("print(1)")).stdout == b"1\n"
    warm = [process._process for process in pool._warm]
    assert len(warm) == 2
    pool.close()
    assert all(process.returncode is not None for process in warm)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_machine_without_bubblewrap_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="apt install bubblewrap"):
        Pool(LIMITS).run(Job("pass"))
    fault = sandbox_fault()
    assert fault is not None and "bubblewrap" in str(fault)
    (finding,) = sandbox_findings()
    assert (finding.status, "apt install bubblewrap" in finding.fix) == ("warning", True)


def test_a_machine_without_namespaces_is_told_what_to_allow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "_launcher", lambda: [str(refusing)])
    with pytest.raises(SandboxBroken, match="No permissions.*user namespaces"):
        Pool(LIMITS).run(Job("pass"))
    fault = sandbox_fault()
    assert fault is not None and "unprivileged_userns_clone" in fault.todo


def test_a_fork_has_a_pool_of_its_own_and_ends_none_of_its_parents() -> None:
    require_sandbox()
    limits = Limits(tmp_bytes=2 * MIB)
    pool = shared_pool(limits)
    assert pool is shared_pool(limits)
    assert pool.run(Job("print(1)")).stdout == b"1\n"
    script = f"""
import os
from protocol.sandbox.limits import Limits
from protocol.sandbox.pool import shared_pool
from protocol.sandbox.process import Job
limits = Limits(tmp_bytes={2 * MIB})
assert shared_pool(limits).run(Job("print(1)")).stdout == b"1\\n"
child = os.fork()
assert shared_pool(limits).run(Job("print(2)")).stdout == b"2\\n"
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert shared_pool(limits).run(Job("print(3)")).stdout == b"3\\n"
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    pool.close()
    shared_pool.__globals__["_pool_of"].cache_clear()
