"""A statement for people and spreadsheets, and the period that they ask for.

In: `ProviderStatement`; days or UTC times. Out: lines, CSV; `Period`. People see whole credits, CSV has wei as well.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

from protocol.amount import format_amount
from protocol.errors import UsageError
from protocol.events import utc
from worker.provider.statement import Period, ProviderStatement, StatementLine

COLUMNS = (
    "time",
    "kind",
    "amount",
    "amount_wei",
    "state",
    "submission_id",
    "node",
    "event",
    "units",
    "verdicts",
    "log_index",
    "epoch",
    "anchor_transaction",
    "root_epoch",
    "root_transaction",
    "transaction_hash",
)
_YEAR_10000 = 253_402_300_800
_DAY_SECONDS = 86_400
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def period_of(start: str | None, end: str | None) -> Period:
    """A day as an end is within. Raises UsageError for what is no day or time, or ends before it begins."""
    first = None if start is None else _seconds(start, "--from")
    last = None if end is None else _seconds(end, "--to", is_end=True)
    if first is not None and last is not None and first >= last:
        raise UsageError("the period ends before it begins", f"--from {start} --to {end}", "swap them")
    return Period(first, last)


def write_csv(statement: ProviderStatement, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in statement.lines:
        document = line.model_dump(mode="json")
        document |= {"time": _iso(line.time), "amount": format_amount(line.amount_wei), "verdicts": _verdicts(line)}
        writer.writerow(["" if document[name] is None else document[name] for name in COLUMNS])


def lines_of(statement: ProviderStatement) -> Iterator[str]:
    """The period, line by line, then where all that was ever earned is."""
    start = "the beginning" if statement.from_time is None else utc(statement.from_time)
    end = utc(statement.time if statement.to_time is None else statement.to_time)
    yield f"{statement.provider} in pool {statement.pool_id} on chain {statement.chain_id}, from {start} to {end}"
    yield f"{'opening':<26} {format_amount(statement.opening_wei)}"
    for line in statement.lines:
        yield from _line(line)
    yield f"{'earned':<26} {format_amount(statement.earned_wei)}"
    yield f"{'claimed':<26} {format_amount(statement.claimed_wei)}"
    yield f"{'closing':<26} {format_amount(statement.closing_wei)}"
    yield f"of all that was earned, as of block {statement.block}:"
    balance = statement.balance
    for label, amount_wei in (
        ("claimed", balance.claimed_wei),
        ("withheld by cases", balance.withheld_wei),
        ("claimable now", balance.claimable_wei),
        ("claimable later", balance.claimable_later_wei),
        ("not in a root yet", balance.waiting_for_root_wei),
        ("together, as earned", balance.earned_wei),
    ):
        yield f"  {label:<24} {format_amount(amount_wei)}"
    if balance.owing_wei:
        yield f"cases withhold {format_amount(balance.owing_wei)} more than that: it comes off later earnings"
    yield "the log and the contracts agree" if not statement.differences else "the log and the contracts DIFFER:"


def _line(line: StatementLine) -> Iterator[str]:
    subject = line.submission_id or line.transaction_hash or ""
    yield f"{utc(line.time)}  {line.kind:<8} {format_amount(line.amount_wei):<22} {line.state:<16} {subject}"
    if line.kind != "credit":
        return
    what = [f"{line.event} in leaf {line.log_index}", _verdicts(line)]
    if line.transaction_hash is not None:
        what.append(f"claimed by {line.transaction_hash}")
    elif line.root_transaction is not None:
        what.append(f"in the root of epoch {line.root_epoch}, {line.root_transaction}")
    yield "    " + ", ".join(part for part in what if part)


def _verdicts(line: StatementLine) -> str:
    return "; ".join(f"{one.outcome} by {one.validator} (leaf {one.log_index})" for one in line.verdicts)


def _iso(seconds: int) -> str:
    if seconds >= _YEAR_10000:
        return str(seconds)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str, name: str, *, is_end: bool = False) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        todo = "give a day such as 2026-11-01, or a UTC time such as 2026-11-01T08:30"
        raise UsageError("that is no day", f"{name} {text}", todo) from error
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    whole_days = 1 if is_end and _DAY.fullmatch(text) else 0
    return max(0, int(moment.timestamp()) + whole_days * _DAY_SECONDS)
