"""Judges math answers in a process apart (`math_server.py`), and says how sure it is.

In: readings of two answers, (gold, answer) in LaTeX. Out: a `Judgement`. The process has a clean environment, the same
on every machine: locale, time zone, hash seed, folder. It is started when it is first needed, kept warm, and replaced
when it fails; where bubblewrap is to be had it sees neither the network nor any file but Python's.

CPU seconds decide, whatever else the machine does. With limit L and margin m:

    spent < L/m        certain
    L/m ≤ spent < L    what was found; a slower machine would have had to say 0
    L ≤ spent < m·L    0; a faster machine would have had what was found here
    m·L                ended: 0, and nothing that anybody claims is slashed
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.environments.base import Judgement
from protocol.errors import ConfigError

SERVER = Path(__file__).with_name("math_server.py")
MARGIN = 4.0
"""By how much one machine may be faster than another before a time limit tells them apart."""
START_SECONDS = 120.0
ANSWER_SECONDS = 60.0
"""Beyond what the server itself waits for a judgement."""
KEPT = 4_096
"""Findings that are remembered."""
CLEAN = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Finding:
    """What the process says of one comparison. `ended`: `done`, `limit` (of CPU seconds) or `fault`."""

    equal: bool
    cpu_seconds: float
    ended: str


class MathJudge:
    """Example: `MathJudge(1.0).judge([("\\frac{1}{2}", "0.5")])` is `Judgement(1.0)`."""

    def __init__(self, cpu_seconds: float) -> None:
        self._limit = cpu_seconds
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._found: OrderedDict[tuple[tuple[str, str], ...], Finding] = OrderedDict()

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgement:
        """1 where any pair is equal, else 0. Raises ConfigError where no process can be started."""
        return judgement_of(self.find(pairs), self._limit)

    def find(self, pairs: Sequence[tuple[str, str]]) -> Finding:
        """What `judge` goes by; a group's equal answers are compared once."""
        key = tuple(pairs)
        with self._lock:
            if key not in self._found:
                self._found[key] = self._compared(key)
                if len(self._found) > KEPT:
                    self._found.popitem(last=False)
            return self._found[key]

    def _compared(self, pairs: tuple[tuple[str, str], ...]) -> Finding:
        """A server that has died since is replaced; one that dies of these pairs isn't asked them again."""
        most = math.ceil(self._limit * MARGIN)
        if self._server is None or not self._server.is_mine():
            self._server = _Server()
        try:
            return self._server.ask(pairs, most)
        except (OSError, ValueError):
            self._server.end()
            self._server = None
            return Finding(equal=False, cpu_seconds=0.0, ended="fault")


def judgement_of(finding: Finding, limit: float) -> Judgement:
    """What the table above says of a finding under a limit of CPU seconds."""
    if finding.ended != "done":
        return Judgement(0.0, certain=False)
    found = float(finding.equal)
    if finding.cpu_seconds < limit / MARGIN:
        return Judgement(found)
    if finding.cpu_seconds < limit:
        return Judgement(found, other=0.0, certain=False)
    return Judgement(0.0, other=found, certain=False)


class _Server:
    """One running process."""

    def __init__(self) -> None:
        """Raises ConfigError where it doesn't start, in bubblewrap or without."""
        self._pid = os.getpid()
        commands = [_command()]
        if bwrap := shutil.which("bwrap"):
            commands.insert(0, [*_walls(bwrap), *commands[0]])
        reason = ""
        for command in commands:
            process = _started(command)
            self._process = process
            self.end = weakref.finalize(self, _end, process, self._pid)
            if self._line(START_SECONDS).get("ready"):
                return
            reason = _last_words(process)
        raise ConfigError("the process that judges math answers doesn't start", reason, "see `proofpool doctor`")

    def is_mine(self) -> bool:
        """Whether it runs, and for this process: a fork must not share its pipes."""
        return self._pid == os.getpid() and self._process.poll() is None

    def ask(self, pairs: Sequence[tuple[str, str]], cpu_seconds: int) -> Finding:
        """Raises OSError or ValueError where it doesn't answer."""
        assert self._process.stdin is not None
        asked = json.dumps({"pairs": list(pairs), "cpu_seconds": cpu_seconds}).encode() + b"\n"
        self._process.stdin.write(asked)
        self._process.stdin.flush()
        told = self._line(max(30, 10 * cpu_seconds) + ANSWER_SECONDS)
        if not told:
            raise ValueError("the judge fell silent")
        return Finding(bool(told["equal"]), float(told["cpu_seconds"]), str(told["ended"]))

    def _line(self, seconds: float) -> dict[str, Any]:
        """The next line; empty where there is none in time."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return {}
        line = self._process.stdout.readline()
        told: dict[str, Any] = json.loads(line) if line else {}
        return told


def _command() -> list[str]:
    return [sys.executable, "-s", "-P", str(SERVER)]


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(path for path in sys.path if path and Path(path).is_absolute())
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={**CLEAN, "PYTHONPATH": paths},
        start_new_session=True,  # Ctrl-C is for the process that asks
    )


def _walls(bwrap: str) -> list[str]:
    """Namespaces of its own, and read-only what Python is made of."""
    seen = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, str(SERVER.parent)}
    seen |= {path for path in sys.path if path and Path(path).is_absolute()}
    seen |= {"/usr", "/lib", "/lib64", "/bin"}
    binds = [word for path in sorted(seen) if Path(path).exists() for word in ("--ro-bind", path, path)]
    return [bwrap, "--unshare-all", "--new-session", *binds, "--proc", "/proc", "--dev", "/dev", "--chdir", "/", "--"]


def _last_words(process: subprocess.Popen[bytes]) -> str:
    """Ends it; the end of what it wrote about why it didn't start."""
    process.kill()
    process.wait()
    words = process.stderr.read() if process.stderr else b""
    _end(process, os.getpid())
    return words.decode(errors="replace").strip()[-600:]


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Only its own process ends it: a fork merely closes its ends of the pipes."""
    if owner == os.getpid():
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
