"""A pool with small limits, so that what runs into one does so soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol.sandbox.limits import MIB, Limits
from protocol.sandbox.pool import Pool
from protocol.sandbox.process import Job, Run
from tests.sandboxes import require_sandbox

LIMITS = Limits(cpu_seconds=0.2, idle_seconds=0.5, memory_bytes=256 * MIB, tmp_bytes=4 * MIB, output_bytes=MIB)
RunProgram = Callable[..., Run]


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    require_sandbox()
    pool = Pool(LIMITS)
    yield pool
    pool.close()


@pytest.fixture
def run(pool: Pool) -> RunProgram:
    """Runs a program, then one that is known to be good: whatever the first did, the second isn't touched."""

    def run_program(code: str, stdin: bytes = b"", call: tuple[str, list[Any]] | None = None) -> Run:
        found = pool.run(Job(code, stdin, call))
        after = pool.run(Job("print(int(input()) + 1)", b"41\n"))
        assert (after.ending, after.exit_code, after.stdout) == ("exited", 0, b"42\n")
        return found

    return run_program
