"""One sandbox, started ahead and used once: it waits warm, runs one job, and is gone with all that it made.

In: `Job` (the program, and what it reads or the call to make). Out: `Run`: what came out of the pipes, how it ended,
and what the kernel says of its time and memory. The watch is outside: nothing within can stop or fake its clock.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from protocol.errors import SandboxBroken
from protocol.sandbox import account
from protocol.sandbox.bubblewrap import ALLOW_NAMESPACES, command, counts_threads_by_namespace
from protocol.sandbox.exchange import CHUNK_BYTES, Exchange, Outlet
from protocol.sandbox.inside import READY
from protocol.sandbox.limits import Limits
from protocol.sandbox.seccomp import filter_program

Ending = Literal["exited", "cpu", "idle", "output", "last_resort"]
LOOK_SECONDS, START_SECONDS = 0.05, 60
MAX_ERROR_BYTES = 4096
MEMORY = "is the machine short of memory? see dmesg"


@dataclass(frozen=True)
class Job:
    """A program, and either what it reads or the call whose value is wanted.

    Example: `Job("print(int(input()) + 1)", stdin=b"41\\n")` or `Job("def f(x): return x + 1", call=("f", [41]))`.
    """

    code: str
    stdin: bytes = b""
    call: tuple[str, list[Any]] | None = None
    memory_factor: int = 1
    """Of the memory that the limits give: a second look at what ran short of it."""


@dataclass(frozen=True)
class Run:
    """How a job went. `returned` is what the program claims to return, as JSON that nobody has looked at yet."""

    ending: Ending
    """"exited", or the limit at which it was ended."""
    exit_code: int
    """As a shell says it: 128 + signal for a signal."""
    stdout: bytes
    returned: bytes
    stderr: bytes
    """Its first `MAX_ERROR_BYTES`."""
    cpu_seconds: float
    idle_seconds: float
    wall_seconds: float
    peak_bytes: int
    """The most address space that was seen; 0 where it was over before anybody looked."""


@dataclass
class _Used:
    """What a run has used up so far, as it was seen."""

    start: float
    cpu: float = 0.0
    queued: float = 0.0
    wall: float = 0.0
    peak: int = 0

    @property
    def idle(self) -> float:
        return max(0.0, self.wall - self.cpu - self.queued)

    def look(self, pid: int) -> None:
        self.cpu = max(self.cpu, account.cpu_seconds(pid))
        self.queued = max(self.queued, account.queued_seconds(pid))
        self.peak = max(self.peak, account.peak_bytes(pid))
        self.wall = time.monotonic() - self.start

    def over(self, limits: Limits) -> Ending | None:
        if self.cpu >= limits.killed_at_cpu_seconds:
            return "cpu"
        if self.idle >= limits.killed_at_idle_seconds:
            return "idle"
        return "last_resort" if self.wall >= limits.last_resort_seconds else None


class SandboxProcess:
    """A warm interpreter in a sandbox of its own. `run` may be called once; `close` ends it whatever it does.

    The thread that makes it must outlive it: bubblewrap ends with the thread that started it.
    """

    def __init__(self, limits: Limits) -> None:
        """Starts it and returns at once; raises ConfigError without bubblewrap."""
        self.limits = limits
        filter_fd = _filled_pipe(filter_program(platform.machine()))
        (job_read, self._job), (self._result, result_write), (self._info, info_write) = (os.pipe() for _ in range(3))
        self._open, self._child = {self._job, self._result, self._info}, -1
        theirs = (filter_fd, job_read, result_write, info_write)
        try:
            self._process = subprocess.Popen(
                [*command(limits, filter_fd, info_write), str(job_read), str(result_write)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=theirs,
                env={},
            )
        except BaseException:
            self._close_descriptors()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._stdin, self._stdout, self._stderr = (stream.fileno() for stream in streams if stream is not None)

    def await_warm(self) -> None:
        """Until the interpreter waits for its job. Raises SandboxBroken if it never will."""
        told = b""
        while b"}" not in told and (more := os.read(self._info, CHUNK_BYTES)):
            told += more  # bubblewrap writes it piece by piece
        if not told or os.read(self._result, 1) != READY:
            why = os.read(self._stderr, MAX_ERROR_BYTES).decode(errors="replace").strip()
            raise SandboxBroken("a sandbox didn't start", why or "it ended without a word", ALLOW_NAMESPACES)
        self._pid = int(json.loads(told)["child-pid"])
        self._child = os.pidfd_open(self._pid)
        self._open.add(self._child)

    def run(self, job: Job) -> Run:
        """Runs the job to its end or the end of its limits, and closes.

        Raises SandboxBroken if it didn't come up, or if bubblewrap itself was ended from outside.
        """
        try:
            self.await_warm()
            return self._run(job)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the sandbox with all that is in it, and waits until it is gone."""
        if self._process.returncode is None:
            self._kill()
            self._end_unstarted()
            try:
                self._process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close_descriptors()

    def _run(self, job: Job) -> Run:
        before = account.first_thread_seconds(self._pid) + account.first_thread_seconds(self._process.pid)
        stdout, returned = (Outlet(fd, self.limits.output_bytes) for fd in (self._stdout, self._result))
        stderr = Outlet(self._stderr, MAX_ERROR_BYTES)
        # Both are the exchange's to close from here on: the program sees the end of its input by it.
        stdin = os.dup(self._stdin)
        self._process.stdin.close()  # type: ignore[union-attr]
        self._open.discard(self._job)
        exchange = Exchange(
            {self._job: _document(job, self.limits), stdin: job.stdin}, [stdout, returned, stderr], self._child
        )
        try:
            ending, used = self._watch(exchange, (stdout, returned))
        finally:
            exchange.close()
        self._kill()
        _, status, rusage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode < 0:
            raise SandboxBroken("a sandbox was ended from outside", f"signal {-self._process.returncode}", MEMORY)
        used.cpu = max(0.0, rusage.ru_utime + rusage.ru_stime - before)
        used.wall = time.monotonic() - used.start
        return Run(
            ending=ending,
            exit_code=self._process.returncode,
            stdout=bytes(stdout.content),
            returned=bytes(returned.content),
            stderr=bytes(stderr.content),
            cpu_seconds=used.cpu,
            idle_seconds=used.idle,
            wall_seconds=used.wall,
            peak_bytes=used.peak,
        )

    def _watch(self, exchange: Exchange, counted: tuple[Outlet, Outlet]) -> tuple[Ending, _Used]:
        used = _Used(time.monotonic())
        look_at = used.start
        while not exchange.done:
            exchange.step(max(0.0, look_at - time.monotonic()))
            if sum(outlet.num_bytes for outlet in counted) > self.limits.output_bytes:
                return "output", used
            if time.monotonic() >= look_at:
                used.look(self._pid)
                look_at = time.monotonic() + LOOK_SECONDS
                if ending := used.over(self.limits):
                    return ending, used
        return "exited", used

    def _kill(self) -> None:
        """The first process of a pid namespace takes all others with it."""
        if self._child >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._child, signal.SIGKILL)

    def _end_unstarted(self) -> None:
        """Without a job it ends by itself; bubblewrap, killed while it makes its namespaces, leaves a child behind."""
        if self._child < 0 and self._job in self._open:
            os.close(self._job)
            self._open.discard(self._job)

    def _close_descriptors(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open, self._child = set(), -1
        if hasattr(self, "_process"):
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()


def _document(job: Job, limits: Limits) -> bytes:
    inside = limits.inside()
    if not counts_threads_by_namespace():
        del inside["RLIMIT_NPROC"]
    inside["RLIMIT_AS"] *= job.memory_factor
    call = None if job.call is None else {"name": job.call[0], "arguments": job.call[1]}
    return json.dumps({"code": job.code, "call": call, "limits": inside}).encode()


def _filled_pipe(data: bytes) -> int:
    """The reading end of a pipe that holds all of `data`, which must fit into one."""
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    return read
