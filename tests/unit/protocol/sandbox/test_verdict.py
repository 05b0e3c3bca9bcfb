"""Three values: passed, failed, and what another honest machine may find otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.sandbox.limits import MIB, Limits
from protocol.sandbox.process import Ending, Run
from protocol.sandbox.verdict import judge

LIMITS = Limits(cpu_seconds=4, idle_seconds=4, margin=2, memory_bytes=512 * MIB)
QUICK = Run("exited", 0, b"3\n", b"", b"", 0.01, 0.01, 0.02, 40 * MIB)


@pytest.mark.parametrize(
    ("cpu_seconds", "passed", "certain"),
    [(0.1, True, True), (1.9, True, True), (3.9, True, False), (4.1, False, False)],
)
def test_a_right_answer_is_certain_far_from_the_limit(cpu_seconds: float, passed: bool, certain: bool) -> None:
    for slow in (replace(QUICK, cpu_seconds=cpu_seconds), replace(QUICK, idle_seconds=cpu_seconds)):
        found = judge(slow, LIMITS, is_right=True)
        assert (found.passed, found.certain) == (passed, certain)


@pytest.mark.parametrize("cpu_seconds", [0.1, 3.9, 7.9])
def test_a_wrong_answer_is_wrong_however_long_it_took(cpu_seconds: float) -> None:
    found = judge(replace(QUICK, cpu_seconds=cpu_seconds), LIMITS, is_right=False)
    assert (found.passed, found.certain) == (False, True)


@pytest.mark.parametrize("ending", ["cpu", "idle", "output"])
def test_what_was_ended_has_failed(ending: Ending) -> None:
    found = judge(replace(QUICK, ending=ending), LIMITS, is_right=True)
    assert (found.passed, found.certain) == (False, True) and found.why


def test_what_a_machine_could_not_finish_is_nobodys_fault() -> None:
    found = judge(replace(QUICK, ending="last_resort"), LIMITS, is_right=True)
    assert (found.passed, found.certain) == (False, False)


def test_a_crash_after_the_right_answer_is_a_crash() -> None:
    found = judge(replace(QUICK, exit_code=1, stderr=b"...\nValueError: x\n"), LIMITS, is_right=True)
    assert (found.passed, found.certain, found.why) == (False, True, "ValueError: x")


def test_what_the_machine_killed_is_nobodys_fault_either() -> None:
    for is_right in (True, False):
        found = judge(replace(QUICK, exit_code=137), LIMITS, is_right)
        assert (found.passed, found.certain) == (False, False)


def test_memory_is_uncertain_near_its_limit() -> None:
    near = replace(QUICK, peak_bytes=500 * MIB)
    assert not judge(near, LIMITS, is_right=True).certain
    assert judge(near, LIMITS, is_right=True).passed
    short = replace(QUICK, exit_code=1, stderr=b"Traceback\nMemoryError\n")
    assert not judge(short, LIMITS, is_right=False).certain
    assert judge(near, LIMITS, is_right=False).certain


@pytest.mark.parametrize("margin", [1.25, 2.0, 4.0])
def test_machines_within_the_margin_never_contradict_each_other_with_certainty(margin: float) -> None:
    """Over CPU times on one machine and speeds of the other: two certain verdicts on a right answer are the same."""
    limits = Limits(cpu_seconds=1, margin=margin)

    def found(seconds: float) -> tuple[bool, bool]:
        if seconds >= limits.killed_at_cpu_seconds:
            verdict = judge(replace(QUICK, ending="cpu"), limits, is_right=False)
        else:
            verdict = judge(replace(QUICK, cpu_seconds=seconds), limits, is_right=True)
        return verdict.passed, verdict.certain

    for step in range(1, 200):
        here, certain = found(seconds := step / 20)
        for speed in (1 / margin, 0.9, 1.0, 1.1, margin):
            there, also = found(seconds * speed)
            assert here == there or not certain or not also
            # What a worker found, a verifier that is certain of the opposite would slash.
            assert here == there or not also
