"""`Accountability` for a terminal: validators by number, in tables that fit a hundred columns.

In: the report. Out: lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.draw import BPS
from protocol.reasons import Outcome
from verifier.audit.reports.accountability import MAX_LISTED, Accountability, Audited, Pair, ValidatorRow
from verifier.audit.table import share, table

MAX_MATRIX = 8
"""Validators in a matrix; of more the pairs are listed that differ most."""
MAX_ROWS = 20
"""Pairs, and overturned verdicts, that are listed."""


def accountability_lines(report: Accountability) -> Iterator[str]:
    yield _audited_line(report.audited, report.expected_bps)
    if not report.validators:
        yield "no validator has been drawn"
        return
    names = {row.validator: f"V{number}" for number, row in enumerate(report.validators, 1)}
    yield from ("", "draws, and chain seconds from draw to verdict", *table(_turn_rows(report.validators, names), 2))
    yield from ("", "verdicts", *table(_verdict_rows(report.validators, names)))
    yield from (
        "",
        "settled work that it judged in round 0, and how much of that was judged again; pay",
        *table(_pay_rows(report.validators, names)),
    )
    yield from ("", "submissions that two validators judged: same outcome / both", *_agreement(report, names))
    yield from _overturned_lines(report, names)
    if number := report.unreadable["num_unreadable"]:
        yield f"\n{number} events can't be read, the first is leaf {report.unreadable['first_unreadable']}"


def _audited_line(audited: Audited, expected_bps: int) -> str:
    return (
        f"{audited.num_settled} submissions settled, {audited.num_drawn} of them judged again"
        f" ({share(audited.num_drawn, audited.num_settled)}; the pool asks for {share(expected_bps, BPS)}):"
        f"\n{audited.num_agreed} agreed, {audited.num_disagreed} disagreed, {audited.num_undecided} undecided,"
        f" {audited.num_open} open"
    )


def _turn_rows(rows: Iterable[ValidatorRow], names: dict[str, str]) -> list[tuple[str, ...]]:
    header = ("", "validator", "drawn", "in time", "missed", "late", "open", "median", "90 %")
    return [header] + [
        (
            *(names[row.validator], row.validator),
            *map(str, (row.turns.num_drawn, row.turns.num_in_time, row.turns.num_missed)),
            *map(str, (row.turns.num_late, row.turns.num_open)),
            *("-" if took is None else str(took) for took in (row.median_seconds, row.p90_seconds)),
        )
        for row in rows
    ]


def _verdict_rows(rows: Iterable[ValidatorRow], names: dict[str, str]) -> list[tuple[str, ...]]:
    header = ("", *(outcome.name.lower() for outcome in Outcome), "overturned: decision", "re-audit", "case")
    return [(*header, "vindicated", "stamps", "disputed")] + [
        (
            names[row.validator],
            *map(str, row.verdicts.values()),
            *map(str, row.overturned.values()),
            *map(str, (row.num_vindicated, row.num_stamps_reviewed, row.num_stamps_disputed)),
        )
        for row in rows
    ]


def _pay_rows(rows: Iterable[ValidatorRow], names: dict[str, str]) -> list[tuple[str, ...]]:
    header = ("", "settled", "again", "share", "agreed", "disagreed", "undecided", "pay (wei)")
    return [header] + [
        (
            names[row.validator],
            *map(str, (row.audited.num_settled, row.audited.num_drawn)),
            share(row.audited.num_drawn, row.audited.num_settled),
            *map(str, (row.audited.num_agreed, row.audited.num_disagreed, row.audited.num_undecided)),
            row.pay_wei,
        )
        for row in rows
    ]


def _agreement(report: Accountability, names: dict[str, str]) -> Iterator[str]:
    pairs = {pair.validators: pair for pair in report.agreement}
    if not pairs:
        yield "none yet"
    elif len(names) <= MAX_MATRIX:
        yield from table([("", *names.values()), *(_matrix_row(pairs, one, names) for one in names)])
    else:
        worst = sorted(report.agreement, key=lambda pair: (-pair.num_other, pair.validators))
        rows = [(*map(names.__getitem__, p.validators), str(p.num_same), str(p.num_both)) for p in worst[:MAX_ROWS]]
        yield from table([("", "", "same", "both"), *rows], 2)
        if len(worst) > MAX_ROWS:
            yield f"and {len(worst) - MAX_ROWS} pairs more (--json has them)"


def _matrix_row(pairs: dict[tuple[str, str], Pair], one: str, names: dict[str, str]) -> tuple[str, ...]:
    found = (pairs.get((min(one, other), max(one, other))) for other in names)
    return (names[one], *(f"{pair.num_same}/{pair.num_both}" if pair else "-" for pair in found))


def _overturned_lines(report: Accountability, names: dict[str, str]) -> Iterator[str]:
    if not report.num_overturned:
        return
    yield from ("", f"overturned verdicts: {report.num_overturned}")
    for one in report.overturned[:MAX_ROWS]:
        yield f"{one.submission_id}  {names[one.validator]}, round {one.round}: {one.outcome}, by {one.by}"
    if report.num_overturned > MAX_ROWS:
        yield f"and {report.num_overturned - MAX_ROWS} more (--json has up to {MAX_LISTED})"
