"""Sandboxes started ahead, so that a test costs what it computes and not what it takes to start a Python.

In: jobs, from any thread. Out: their runs. Each job gets a sandbox that nobody used before; taking one starts the
next. All are started by the pool's own threads, which live as long as it does: a sandbox ends with its thread.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from threading import Lock

from protocol.errors import SandboxBroken
from protocol.sandbox.limits import Limits
from protocol.sandbox.process import Job, Run, SandboxProcess

ATTEMPTS = 3
"""A sandbox that waited may have been ended by whoever was short of memory."""


class Pool:
    """As many jobs at once as there are processors, and as many sandboxes again waiting warm."""

    def __init__(self, limits: Limits, num_at_once: int = 0) -> None:
        """`num_at_once` 0: a job a processor. Nothing is started before the first job."""
        self.limits = limits
        self.num_at_once = num_at_once or len(os.sched_getaffinity(0))
        self._executor = ThreadPoolExecutor(self.num_at_once, thread_name_prefix="sandbox")
        self._warm: deque[SandboxProcess] = deque()
        self._lock = Lock()
        self._end = weakref.finalize(self, _end, os.getpid(), self._executor, self._warm)

    def run(self, job: Job) -> Run:
        """Raises SandboxBroken where no sandbox comes up, ConfigError without bubblewrap."""
        return self.submit(job).result()

    def run_all(self, jobs: Iterable[Job]) -> list[Run]:
        """The same for many, in their order."""
        return [future.result() for future in [self.submit(job) for job in jobs]]

    def submit(self, job: Job) -> Future[Run]:
        return self._executor.submit(self._run, job)

    def close(self) -> None:
        """Ends everything that is warm or running, and waits until it is gone."""
        self._end()

    def _run(self, job: Job) -> Run:
        for _ in range(ATTEMPTS - 1):
            with suppress(SandboxBroken):
                return self._take().run(job)
        return self._take().run(job)

    def _take(self) -> SandboxProcess:
        """The one that has been warm for longest; as many as may be needed at once are started in its place."""
        with self._lock:
            while len(self._warm) <= self.num_at_once:
                self._warm.append(SandboxProcess(self.limits))
            return self._warm.popleft()


def _end(owner: int, executor: ThreadPoolExecutor, warm: deque[SandboxProcess]) -> None:
    if os.getpid() != owner:
        return  # in a fork: the sandboxes are its parent's
    executor.shutdown(wait=True, cancel_futures=True)
    while warm:
        warm.pop().close()


def shared_pool(limits: Limits) -> Pool:
    """The one pool of this process with these limits."""
    return _pool_of(os.getpid(), limits)


@cache
def _pool_of(owner: int, limits: Limits) -> Pool:
    """A fork has none of its parent's threads, and needs a pool of its own."""
    return Pool(limits)
