"""Steps and what they add up to: the words and exit codes that an auditor's scripts rely on."""

from __future__ import annotations

import json

import pytest

from protocol.errors import ChainError, UsageError, VerificationFailed
from verifier.audit.bundle.ground import KnownHead, parse_head
from verifier.audit.report import print_report
from verifier.audit.step import Report, Step, StepState, StillOpen, Values, must_equal, must_hold, take_step


def good() -> Values:
    return {"root": "0x01"}


def bad() -> Values:
    must_equal("roots differ", "0x01", "0x02")
    return {}


def waiting() -> Values:
    raise StillOpen("not anchored yet")


def report(*steps: Step, anchor: str = "") -> Report:
    return Report("0xab", steps, anchor, "block 7")


def test_a_step_is_ok_failed_or_open() -> None:
    assert take_step("a", good) == Step("a", StepState.OK, {"root": "0x01"})
    assert take_step("a", bad) == Step("a", StepState.FAILED, {}, "roots differ | found 0x01, expected 0x02")
    assert take_step("a", waiting) == Step("a", StepState.OPEN, {}, "not anchored yet")


def test_an_error_that_is_no_answer_travels() -> None:
    def unreachable() -> Values:
        raise ChainError("nobody answers")

    with pytest.raises(ChainError):
        take_step("a", unreachable)


def test_what_holds_passes_and_what_doesnt_raises() -> None:
    must_hold("it holds", True)
    with pytest.raises(VerificationFailed, match="2 of 3"):
        must_hold("too few", False, "2 of 3")


def test_one_failed_step_fails_the_report() -> None:
    found = report(take_step("a", good), take_step("b", bad), take_step("c", waiting), anchor="chain")
    assert (found.result, found.exit_code) == ("failed", 3)
    assert [line[0] for line in found.lines()][:3] == ["✓", "✗", "·"]


def test_open_steps_dont_fail_it_and_only_an_anchor_makes_it_ok() -> None:
    steps = (take_step("a", good), take_step("c", waiting))
    assert (report(*steps).result, report(*steps).exit_code) == ("consistent, not anchored", 0)
    assert (report(*steps, anchor="chain").result, report(*steps, anchor="chain").exit_code) == ("ok", 0)


def test_the_document_has_every_step_with_its_values() -> None:
    document = report(take_step("a", good), take_step("b", bad)).as_json()
    assert document["subject"] == "0xab" and document["as_of"] == "block 7"
    assert [(step["name"], step["state"]) for step in document["steps"]] == [("a", "ok"), ("b", "failed")]


def test_a_trusted_head_is_epoch_size_and_root() -> None:
    root = "0x" + "AB" * 32
    assert parse_head(f"3:120:{root}") == KnownHead(3, 120, root.lower())
    for text in ("3:120", "x:1:0x", "", "1:2:3:4", f"3:120:{root[:-1]}", f"-3:120:{root}", f"3:120:{root}:4"):
        with pytest.raises(UsageError):
            parse_head(text)


def test_what_others_have_written_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    step = take_step("digest", lambda: {"root": "0x01\x1b[2J"})
    assert print_report(report(step), as_json=False) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert print_report(report(step), as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["steps"][0]["values"] == {"root": "0x01\x1b[2J"}
