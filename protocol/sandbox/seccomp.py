"""The filter between a sandboxed program and the kernel, as the BPF program that bubblewrap loads.

In: an architecture. Out: bytes of `struct sock_filter`, for `bwrap --seccomp FD`. It is a list of what is allowed
(`syscalls.py`); all else returns ENOSYS, and another architecture's calls (i386, x32) end the program.
Source: Linux, Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from protocol.errors import ConfigError
from protocol.sandbox import syscalls

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE = 0, 4
"""Offsets in `struct seccomp_data`; argument i is at 16 + 8i, its low half first."""
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
X32_BIT = 0x40000000

CLONE_THREAD = 0x00010000
CLONE_NEW = 0x7E020000 | 0x00000080
"""Every flag that makes a namespace (cgroup, UTS, IPC, user, pid, net, mount, time)."""
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)
"""TCGETS (isatty), TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX."""
PRCTLS = (15, 16)
"""PR_SET_NAME, PR_GET_NAME: threads have names."""
AF_UNIX = 1


@dataclass(frozen=True)
class Architecture:
    """What of the filter depends on the processor."""

    audit: int
    """AUDIT_ARCH_…, from linux/audit.h."""
    column: int
    """In the tables of `syscalls.py`."""


ARCHITECTURES = {"x86_64": Architecture(0xC000003E, 0), "aarch64": Architecture(0xC00000B7, 1)}


def filter_program(machine: str) -> bytes:
    """The filter for `platform.machine()`; raises ConfigError where there is none."""
    if machine not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ConfigError("programs can't be sandboxed on this processor", f"{machine}; there are filters for {known}")
    return b"".join(_instructions(ARCHITECTURES[machine]))


def _instructions(architecture: Architecture) -> Iterator[bytes]:
    column = architecture.column
    yield _load(ARCHITECTURE)
    yield from _unless(EQUAL, architecture.audit, KILL)
    yield _load(NUMBER)
    yield from _when(AT_LEAST, X32_BIT, KILL)
    for numbers in syscalls.ALLOWED.values():
        if numbers[column] != syscalls.ABSENT:
            yield from _when(EQUAL, numbers[column], ALLOW)
    for numbers in syscalls.SLEEPS:
        yield from _when(EQUAL, numbers[column], ERROR)  # an error of 0 is a success
    yield from _choice(syscalls.IOCTL[column], 1, IOCTLS)
    yield from _choice(syscalls.PRCTL[column], 0, PRCTLS)
    yield from _choice(syscalls.SOCKETPAIR[column], 0, (AF_UNIX,))
    yield from _for_call(syscalls.CLONE[column], _threads_only())
    yield _return(ERROR | errno.ENOSYS)


def _threads_only() -> list[bytes]:
    return [
        _load(16),
        *_when(ANY_BIT, CLONE_NEW, ERROR | errno.EPERM),
        *_when(ANY_BIT, CLONE_THREAD, ALLOW),
        _return(ERROR | errno.EPERM),
    ]


def _choice(number: int, argument: int, values: tuple[int, ...]) -> Iterator[bytes]:
    """Allows a call with one of these values as its argument; refuses it with EPERM otherwise."""
    checks = [check for value in values for check in _when(EQUAL, value, ALLOW)]
    return _for_call(number, [_load(16 + 8 * argument), *checks, _return(ERROR | errno.EPERM)])


def _for_call(number: int, block: list[bytes]) -> Iterator[bytes]:
    """`block`, which ends in a return, for this call; for any other the accumulator is as it was."""
    yield struct.pack("=HBBI", EQUAL, 0, len(block), number)
    yield from block


def _when(test: int, value: int, action: int) -> Iterator[bytes]:
    yield struct.pack("=HBBI", test, 0, 1, value)
    yield _return(action)


def _unless(test: int, value: int, action: int) -> Iterator[bytes]:
    yield struct.pack("=HBBI", test, 1, 0, value)
    yield _return(action)


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", LOAD, 0, 0, offset)


def _return(action: int) -> bytes:
    return struct.pack("=HBBI", RETURN, 0, 0, action)
