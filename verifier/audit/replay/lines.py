"""A `Replay` for people: what it comes to here, each verdict beside it, and what can be done.

In: `Replay`. Out: lines of text.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.checks.report import CheckReport
from protocol.checks.report_table import divergence_lines, limits_text, number_text
from protocol.plain import plain
from protocol.reasons import Outcome
from verifier.audit.replay.comparison import ComparedCheck, ReplayedVerdict
from verifier.audit.replay.replay import Replay
from verifier.audit.step import MARKS, StepState

HEADER = ("check", "said", "here", "difference", "margin said", "margin here", "limits")
CLOSE = "by no more than two machines differ: look at the margins before anybody is blamed"


MAX_NAME = 40
"""Characters of what a verdict calls a check, which may be anything."""


def replay_lines(found: Replay, command: str | None) -> Iterator[str]:
    """`command` is what the remedy takes, None where there is none.

    Evidence is what its validator has written: nothing in it can move a terminal's cursor.
    """
    for line in _lines(found, command):
        yield plain(line)


def _lines(found: Replay, command: str | None) -> Iterator[str]:
    here = found.here
    yield found.submission_id
    yield f"policy version {found.policy_version}, manifest {found.manifest_hash}"
    looked = f"{here.num_audited} of {here.num_rollouts} rollouts through the model"
    yield f"here: {here.outcome}{f' for {here.reason}' if here.reason else ''}; {looked}"
    yield from divergence_lines(here)
    for verdict in found.verdicts:
        yield from _verdict_lines(verdict)
    yield f"log: {found.standing or 'not decided yet'}{'' if found.verdicts else ', no verdict is revealed'}"
    if found.missed_by_draw:
        yield "every verdict is true of what its draw named; the forgery is in other rollouts"
    if command is not None:
        yield f"do: {command}"
    yield f"as of: {found.as_of}"
    blamed = f"; contradicted: {', '.join(found.contradicted)}" if found.contradicted else ""
    yield f"{found.result}{f' (anchored: {found.anchor})' if found.anchor else ''}{blamed}"


def _verdict_lines(found: ReplayedVerdict) -> Iterator[str]:
    mark = MARKS[StepState.OK if found.holds else StepState.FAILED]
    if found.holds and found.agreement == "not replayable":
        mark = MARKS[StepState.OPEN]
    said = f"{found.outcome}{f' for {found.reason}' if found.reason else ''}"
    off = "" if found.stamp_difference is None else f" ({found.stamp_difference:.4g} nats off at most)"
    yield f"{mark} round {found.round}, seat {found.seat}, {found.validator}: {said}"
    yield f"    {_agreement(found)}; stamp: {found.stamp}{off}"
    for fault in found.faults:
        yield f"    {fault}"
    if found.is_close:
        yield f"    {CLOSE}"
    yield from _table(found)


def _agreement(found: ReplayedVerdict) -> str:
    if found.agreement == "another reason":
        return f"agrees, for another reason: {found.reason_here}"
    if found.agreement == "not replayable":
        return "not replayable: it rests on what only its validator, or the pool's record, knew then"
    return found.agreement


def _table(found: ReplayedVerdict) -> Iterator[str]:
    """What has a number on either side, or comes out otherwise; the rest is counted."""
    shown = [one for one in found.checks if _is_worth_a_line(one)]
    rows = [HEADER, *(_cells(one) for one in shown)] if shown else []
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))] if rows else []
    for row in rows:
        yield "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if rest := len(found.checks) - len(shown):
        yield f"    {rest} checks without a number agree" if rest > 1 else "    1 check without a number agrees"


def _is_worth_a_line(one: ComparedCheck) -> bool:
    if one.said is None or one.here is None:
        return True
    return (one.said.value, one.here.value) != (None, None) or one.said.outcome != one.here.outcome


def _cells(one: ComparedCheck) -> tuple[str, ...]:
    far = " far" if one.is_far else ""
    difference = "" if one.difference is None else f"{one.difference:+.4g}{far}"
    margins = _margin(one.said), _margin(one.here)
    return (one.check[:MAX_NAME], _outcome(one.said), _outcome(one.here), difference, *margins, _limits(one))


def _limits(one: ComparedCheck) -> str:
    """Ours, and those of the verdict where it has others."""
    here, said = (limits_text(side) if side else "" for side in (one.here, one.said))
    return here if said in ("", here) else f"{here or 'none'} (said: {said})"


def _outcome(report: CheckReport | None) -> str:
    """The value, and the outcome where that is no acceptance."""
    if report is None:
        return "—"
    refused = "" if report.outcome == Outcome.ACCEPT else f"✗ {(report.reason or '')[:MAX_NAME]}"
    return " ".join(filter(None, (number_text(report.value), refused))) or "✓"


def _margin(report: CheckReport | None) -> str:
    return "" if report is None else number_text(report.margin)
