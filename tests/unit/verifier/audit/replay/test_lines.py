"""What a terminal shows of a replay, whatever the evidence says."""

from __future__ import annotations

from typing import Any

from protocol.checks.report import FileReport
from protocol.checks.stages import Examination
from protocol.reasons import Outcome, RejectReason
from protocol.wire import CheckResult
from tests.unit.verifier.audit.replay.test_comparison import ID, check, compared, refused
from verifier.audit.replay.comparison import ReplayedVerdict
from verifier.audit.replay.lines import replay_lines
from verifier.audit.replay.replay import Replay


def replay(*verdicts: ReplayedVerdict, **changes: Any) -> Replay:
    holds = all(verdict.holds for verdict in verdicts)
    document: dict[str, Any] = {
        "submission_id": ID,
        "result": "ok" if holds else "failed",
        "anchor": "chain 1",
        "as_of": "block 7",
        "policy_version": 2,
        "manifest_hash": ID,
        "standing": "accepted",
        "here": FileReport.of(Examination(None, (check(),))),
        "verdicts": verdicts,
        "contradicted": tuple(verdict.validator for verdict in verdicts if not verdict.holds),
        "missed_by_draw": False,
        "remedy": None,
    }
    return Replay(**(document | changes))


def shown(found: Replay, command: str | None = None) -> str:
    return "\n".join(replay_lines(found, command))


def test_a_verdict_that_holds_has_its_numbers_beside_ours() -> None:
    text = shown(replay(compared([check("schema", None), check()], [check("schema", None), check(value=0.011)])))
    assert "✓ round 0, seat 3, 0xaaaa" in text and "agrees; stamp: holds (0 nats off at most)" in text
    row = next(line.split() for line in text.splitlines() if "toploc_mantissas" in line)
    assert row[:6] == ["toploc_mantissas", "0.01", "0.011", "+0.001", "0.03", "0.029"]
    assert "1 check without a number agrees" in text and text.endswith("ok (anchored: chain 1)")


def test_a_false_one_is_marked_told_and_named_last() -> None:
    text = shown(replay(compared([check()], [refused(0.3, Outcome.SLASH)])), "proofpool audit challenge 0x…")
    assert "✗ round 0, seat 3" in text and "said accept, here it is slash for toploc_mismatch" in text
    assert "do: proofpool audit challenge 0x…" in text
    assert text.endswith("failed (anchored: chain 1); contradicted: 0x" + "aa" * 20)


def test_a_close_call_warns_before_anybody_is_blamed() -> None:
    close = shown(replay(compared([check(value=0.0399)], [refused(0.0401)])))
    assert "look at the margins before anybody is blamed" in close
    assert "margins before" not in shown(replay(compared([check()], [refused(0.9)])))


def test_what_cant_be_replayed_is_open() -> None:
    said = check("duplicates", None, outcome=Outcome.DROP, reason=RejectReason.DUPLICATE.value)
    verdict = compared([said], [check("duplicates", None), check()], Outcome.DROP, RejectReason.DUPLICATE, stamp=())
    text = shown(replay(verdict))
    assert "· round 0" in text and "not replayable: it rests on what" in text and "contradicted" not in text


def test_a_forgery_that_no_seat_drew_blames_nobody() -> None:
    text = shown(replay(compared([check()], [check()]), missed_by_draw=True, result="failed"))
    assert "the forgery is in other rollouts" in text and "contradicted:" not in text


def test_nothing_decided_yet_is_said() -> None:
    assert "log: not decided yet, no verdict is revealed" in shown(replay(standing=None))


def test_evidence_moves_no_cursor() -> None:
    evil = "\x1b[2J\r" + "x" * 500
    verdict = compared([CheckResult(check=evil, outcome=Outcome.DROP, reason=evil)], [check()], Outcome.ACCEPT)
    text = shown(replay(verdict))
    assert "\x1b" not in text and "\r" not in text and "x" * 41 not in text
