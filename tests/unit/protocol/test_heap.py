"""Free memory goes back to the machine where weights come and go: seen from outside, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol.heap import return_holes

PROGRAM = """
import resource, sys
from pathlib import Path
from protocol.heap import return_holes, return_large_blocks

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

if sys.argv[1] == "large":
    return_large_blocks()
else:
    first = bytearray(31 << 20)
    del first  # glibc keeps blocks of that size in its heap from here on
blocks = [bytearray(1 << 20) for _ in range(64)]
kept = blocks[-1]
del blocks
before = resident()
if sys.argv[1] == "holes":
    return_holes()
print((before - resident()) >> 20, before >> 20)
"""


def given_back(how: str) -> tuple[int, int]:
    """MiB that go when they are asked for, and MiB that stood before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True)
    gone, before = done.stdout.split()
    return int(gone), int(before)


@pytest.mark.skipif(not return_holes(), reason="the C library isn't glibc")
def test_holes_go_when_they_are_asked_for_and_large_blocks_by_themselves() -> None:
    stayed, full = given_back("nothing")
    gone, _ = given_back("holes")
    _, small = given_back("large")
    assert stayed == 0 and gone >= 60
    assert full - small >= 60
