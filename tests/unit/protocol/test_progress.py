"""Progress: never silent for longer than half a minute, on a terminal or off it."""

from __future__ import annotations

import io
import threading

import pytest

from protocol.progress import Progress
from tests.unit.steps import Steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_that_lasts_is_named_every_half_minute_off_a_terminal() -> None:
    clock, out = Steps(2), io.StringIO()
    clock.may_go.clear()
    with Progress("honest tasks", 3, clock, out) as progress:
        progress.skip()
        progress.doing("torch float32")
        clock.may_go.set()
        assert clock.is_through.wait(10)
        progress.step()
    assert out.getvalue().splitlines() == [
        "honest tasks: 0 of 3 done after 0 s",
        "honest tasks: 1 of 3 done after 30 s; doing torch float32 since 30 s",
        "honest tasks: 1 of 3 done after 60 s; doing torch float32 since 60 s",
        "honest tasks: 2 of 3 done after 60 s",
    ]


def test_what_is_left_follows_from_the_steps_of_this_process() -> None:
    clock, out = Steps(1), io.StringIO()
    clock.may_go.clear()
    with Progress("honest tasks", 4, clock, out) as progress:
        progress.skip()
        progress.step()
        progress.doing("the next")
        clock.may_go.set()
        assert clock.is_through.wait(10)
    assert out.getvalue().splitlines()[-2] == (
        "honest tasks: 2 of 4 done after 30 s, about 60 s left; doing the next since 30 s"
    )


def test_on_a_terminal_one_line_is_rewritten() -> None:
    clock, out = Steps(0), Terminal()
    with Progress("honest tasks", 1, clock, out) as progress:
        progress.doing("torch")
        progress.step()
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().split("\r\x1b[K")[1:] == [
        "honest tasks: 0 of 1 done after 0 s",
        "honest tasks: 0 of 1 done after 0 s; doing torch since 0 s",
        "honest tasks: 1 of 1 done after 0 s\n",
    ]


def test_interrupted_it_says_how_far_it_came_and_ends_its_thread() -> None:
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt), Progress("honest tasks", 2, Steps(0), out) as progress:
        progress.step()
        raise KeyboardInterrupt
    assert out.getvalue().splitlines()[-1] == "honest tasks: 1 of 2 done after 0 s"
    assert not [thread for thread in threading.enumerate() if "progress" in thread.name]


def test_what_is_over_soon_isnt_worth_a_line_off_a_terminal() -> None:
    out = io.StringIO()
    with Progress("a replay", 1, Steps(0), out, is_patient=True) as progress:
        progress.doing("weights")
        progress.step()
    assert out.getvalue() == ""


def test_what_lasts_says_what_it_waits_for_and_how_far_that_is() -> None:
    clock, out = Steps(1), io.StringIO()
    clock.may_go.clear()
    with Progress("a replay", 1, clock, out, verb="waiting for", is_patient=True) as progress:
        progress.doing("weights")
        progress.still("weights (3 of 7 MiB)")
        clock.may_go.set()
        assert clock.is_through.wait(10)
        progress.step()
    assert out.getvalue().splitlines() == [
        "a replay: 0 of 1 done after 30 s; waiting for weights (3 of 7 MiB) since 30 s",
        "a replay: 1 of 1 done after 30 s",
    ]
