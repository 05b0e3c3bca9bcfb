"""The filter as a program: run by a little machine of our own, for both architectures."""

from __future__ import annotations

import errno
import struct

import pytest

from protocol.errors import ConfigError
from protocol.sandbox import seccomp, syscalls

ALLOW, KILL = seccomp.ALLOW, seccomp.KILL
REFUSED, FORBIDDEN = seccomp.ERROR | errno.ENOSYS, seccomp.ERROR | errno.EPERM


def outcome(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter answers to a call."""
    program = list(struct.iter_unpack("=HBBI", seccomp.filter_program(machine)))
    audit = seccomp.ARCHITECTURES[machine].audit if audit is None else audit
    data = struct.pack("=IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    accumulator, place = 0, 0
    while True:
        code, if_true, if_false, value = program[place]
        place += 1
        if code == seccomp.RETURN:
            return int(value)
        if code == seccomp.LOAD:
            (accumulator,) = struct.unpack_from("=I", data, value)
            continue
        tests = {
            seccomp.EQUAL: accumulator == value,
            seccomp.AT_LEAST: accumulator >= value,
            seccomp.ANY_BIT: bool(accumulator & value),
        }
        place += if_true if tests[code] else if_false


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_what_is_listed_is_allowed_and_nothing_else(machine: str) -> None:
    column = seccomp.ARCHITECTURES[machine].column
    listed = {numbers[column] for numbers in syscalls.ALLOWED.values()}
    special = {call[column] for call in (syscalls.CLONE, syscalls.IOCTL, syscalls.PRCTL, syscalls.SOCKETPAIR)}
    special |= {numbers[column] for numbers in syscalls.SLEEPS}
    for number in range(600):
        if number in listed:
            assert outcome(machine, number) == ALLOW
        elif number not in special:
            assert outcome(machine, number) == REFUSED


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_clone_makes_threads_and_nothing_else(machine: str) -> None:
    clone = syscalls.CLONE[seccomp.ARCHITECTURES[machine].column]
    thread = 0x3D0F00
    assert outcome(machine, clone, thread) == ALLOW
    assert outcome(machine, clone, 17) == FORBIDDEN  # fork
    assert outcome(machine, clone, 0x4111) == FORBIDDEN  # vfork
    for flag in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert outcome(machine, clone, thread | flag) == FORBIDDEN


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_arguments_are_looked_at(machine: str) -> None:
    column = seccomp.ARCHITECTURES[machine].column
    assert outcome(machine, syscalls.IOCTL[column], 0, 0x5401) == ALLOW
    assert outcome(machine, syscalls.IOCTL[column], 0, 0x5412) == FORBIDDEN
    assert outcome(machine, syscalls.PRCTL[column], 15) == ALLOW
    assert outcome(machine, syscalls.PRCTL[column], 4) == FORBIDDEN
    assert outcome(machine, syscalls.SOCKETPAIR[column], 1) == ALLOW
    assert outcome(machine, syscalls.SOCKETPAIR[column], 2) == FORBIDDEN
    for numbers in syscalls.SLEEPS:
        assert outcome(machine, numbers[column]) == seccomp.ERROR


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_another_architectures_calls_are_the_end(machine: str) -> None:
    assert outcome(machine, 39, audit=0x40000003) == KILL  # i386
    assert outcome(machine, 39, audit=0x40000028) == KILL  # arm
    assert outcome(machine, 0x40000000 | 39) == KILL  # x32


def test_a_processor_without_a_filter_is_refused() -> None:
    with pytest.raises(ConfigError, match="sparc"):
        seccomp.filter_program("sparc")
