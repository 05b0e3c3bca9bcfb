"""The command line that makes a sandbox, and whether this machine can make one.

In: limits. Out: arguments for `bwrap`, or ConfigError with what to install. A sandbox has every namespace of its own
(no network, no process but itself), no capability, no environment, the interpreter read-only, and `/tmp` in memory;
no `/proc`, no `/sys`, and of devices only null, zero and a random device that gives zeros.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache

from protocol.errors import ConfigError
from protocol.sandbox.interpreter import ROOM, interpreter
from protocol.sandbox.limits import Limits

INSTALL = "apt install bubblewrap (or your system's package of that name), 0.6 or later"
ALLOW_NAMESPACES = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0);"
    " in a container: --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
)
USER, NOBODY = "1000", "65534"
ENVIRONMENT = {
    "LD_LIBRARY_PATH": f"{ROOM}/lib",
    "PYTHONHASHSEED": "0",  # else sets are in another order each time
    "PYTHONUTF8": "1",
    "MALLOC_ARENA_MAX": "1",  # else threads take address space by the number of processors
    "HOME": "/tmp",
    "TZ": "UTC",
}
"""All that a program finds."""
DEVICES = (("/dev/null", "/dev/null"), ("/dev/zero", "/dev/zero"), ("/dev/zero", "/dev/urandom"))
"""Random bytes are zeros, so that an answer that draws does the same on worker and verifier."""


def bubblewrap_path() -> str:
    """Where `bwrap` is; raises ConfigError naming the package where it isn't."""
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigError("programs can't be sandboxed here", "bwrap (bubblewrap) isn't installed", INSTALL)
    return found


def command(limits: Limits, seccomp_fd: int, info_fd: int) -> list[str]:
    """The whole command line but for the two descriptors that `inside.py` is told."""
    python = interpreter()
    arguments = [*_launcher(), "--unshare-all", "--unshare-user", "--uid", USER, "--gid", USER]
    arguments += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    arguments += ["--clearenv"]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    for path, place in python.mounts:
        arguments += ["--ro-bind", str(path), place]
    for place in python.hidden:
        arguments += ["--size", "4096", "--tmpfs", place, "--remount-ro", place]
    for source, place in DEVICES:
        arguments += ["--dev-bind", source, place]
    arguments += ["--size", str(limits.tmp_bytes), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]
    arguments += ["--seccomp", str(seccomp_fd), "--info-fd", str(info_fd), "--", *python.command]
    return arguments


def _launcher() -> list[str]:
    """bubblewrap; root starts it as a user without any rights, for whom the kernel counts threads and refuses files."""
    bubblewrap = bubblewrap_path()
    if os.geteuid() != 0:
        return [bubblewrap]
    found = shutil.which("setpriv")
    if found is None:
        todo = "apt install util-linux, or run as another user than root"
        raise ConfigError("root can't start sandboxes here", "setpriv (util-linux) isn't installed", todo)
    return [found, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", bubblewrap]


@cache
def counts_threads_by_namespace() -> bool:
    """Whether RLIMIT_NPROC counts within a user namespace (Linux 5.14): before that, all of the user's processes."""
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (5, 14)


def sandbox_fault() -> ConfigError | None:
    """What keeps this machine from running programs in a sandbox; None where nothing does. Takes some milliseconds."""
    try:
        interpreter()
        arguments = [*_launcher(), "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"]
    except ConfigError as error:
        return error
    ended = subprocess.run(arguments, capture_output=True, text=True)
    if ended.returncode != 0:
        return ConfigError("programs can't be sandboxed here", ended.stderr.strip()[:200], ALLOW_NAMESPACES)
    if platform.machine() not in ("x86_64", "aarch64"):
        return ConfigError("programs can't be sandboxed here", f"no system call filter for {platform.machine()}")
    return None
