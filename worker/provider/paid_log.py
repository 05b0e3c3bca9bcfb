"""What the log pays an account, leaf by leaf, and what all accounts have earned up to any size of it.

In: the paying leaves of a log, as a coordinator serves them or as `proofpool audit export --format jsonl` wrote them.
Out: `Credit`s, verdicts, and sums. Nothing is believed: sums over all accounts must have the earnings root on chain,
which no leaf that is missing, changed or added has (`worker/provider/balance.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from protocol.client import CoordinatorClient
from protocol.errors import UsageError, VerificationFailed
from protocol.events import LogEvent
from protocol.progress import Progress
from protocol.reasons import Outcome

PAYING = ("submission.accepted", "submission.rejected", "reaudit.agreed", "reaudit.disagreed")
REVEALED = "verdict.revealed"
PAGE_LEAVES = 1000
MAX_PAYMENTS = 10_000_000
"""Of a log; more than any pool has made is no log."""
_ADDRESS, _AMOUNT = re.compile("0x[0-9a-f]{40}"), re.compile("[0-9]{1,39}")


class PayingLog(Protocol):
    """A log that gives its leaves by type, in order."""

    def of_type(self, event_type: str) -> Iterator[LogEvent]: ...


@dataclass(frozen=True)
class ServedLog:
    """A coordinator's. Raises CoordinatorUnreachable, and VerificationFailed for leaves out of order."""

    client: CoordinatorClient

    def of_type(self, event_type: str) -> Iterator[LogEvent]:
        start = 0
        while page := self.client.entries(start, PAGE_LEAVES, event_type=event_type):
            for entry in page:
                event = LogEvent.of(entry.event)
                if event.index < start or event.type != event_type:
                    why = f"leaf {event.index} of type {event.type}, asked for {event_type} from {start} on"
                    raise VerificationFailed("the coordinator serves other leaves than it was asked for", why)
                yield event
                start = event.index + 1


@dataclass(frozen=True)
class ExportedLog:
    """A file of JSON lines. Raises UsageError for any other."""

    file: Path

    def of_type(self, event_type: str) -> Iterator[LogEvent]:
        todo, number = "`proofpool audit export --format jsonl` writes one", 0
        try:
            with self.file.open("rb") as lines:
                for line in lines:
                    number += 1
                    if (event := _exported(line, event_type)) is not None:
                        yield event
        except OSError as error:
            raise UsageError("the log can't be read", f"{self.file}: {error.strerror}", todo) from error
        except (ValueError, KeyError, TypeError) as error:
            why = f"{self.file}, line {number}: {type(error).__name__}"
            raise UsageError("that is no exported log", why, todo) from error


@dataclass(frozen=True)
class Credit:
    """A payment to the account, in the leaf `index` at chain second `time`; `total_wei` is with all before it."""

    index: int
    time: int
    event: str
    submission_id: str
    node: str | None
    units: int | None
    amount_wei: int
    total_wei: int


@dataclass(frozen=True)
class Opinion:
    """A revealed verdict, in the leaf `index`."""

    index: int
    validator: str
    round: int
    outcome: str
    reason: str | None


@dataclass
class PaidLog:
    """Example: `PaidLog.read(ServedLog(client), provider).earned_wei(size)`."""

    account: str
    credits: list[Credit] = field(default_factory=list)
    verdicts: dict[str, list[Opinion]] = field(default_factory=dict)
    payments: list[tuple[int, str, int]] = field(default_factory=list)
    """(leaf, account, amount), of all accounts, in the log's order."""

    @classmethod
    def read(cls, log: PayingLog, account: str) -> PaidLog:
        """Raises VerificationFailed where a leaf can't be read."""
        with Progress("kinds of leaves", len(PAYING) + 1, is_patient=True) as progress:
            found = list[LogEvent]()
            for event_type in PAYING:
                progress.doing(event_type)
                found += log.of_type(event_type)
                progress.step()
            paid = cls(account)
            for event in sorted(found, key=lambda event: event.index):
                paid.note(event)
            progress.doing(REVEALED)
            own = {credit.submission_id for credit in paid.credits}
            for event in log.of_type(REVEALED):
                paid.note_verdict(event, own)
            progress.step()
        return paid

    def note(self, event: LogEvent) -> None:
        """Take in a paying leaf, in order."""
        for account, amount_wei in _payments(event):
            if len(self.payments) == MAX_PAYMENTS:
                raise VerificationFailed("the log pays without end", f"{MAX_PAYMENTS} payments")
            self.payments.append((event.index, account, amount_wei))
            if account == self.account and amount_wei:
                self._credit(event, amount_wei)

    def note_verdict(self, event: LogEvent, submissions: Collection[str]) -> None:
        outcome, validator = event.data.get("outcome"), event.validator
        if event.subject not in submissions or validator is None or outcome not in tuple(Outcome):
            return
        name = Outcome(outcome).name.lower()
        opinion = Opinion(event.index, validator, event.number("round") or 0, name, event.reason)
        self.verdicts.setdefault(event.subject, []).append(opinion)

    def earned_wei(self, size: int) -> dict[str, int]:
        """By account, over the first `size` leaves; those that earned nothing are left out."""
        totals: dict[str, int] = {}
        for index, account, amount_wei in self.payments:
            if index >= size:
                break
            totals[account] = totals.get(account, 0) + amount_wei
        return {account: amount for account, amount in totals.items() if amount}

    def own_wei(self, size: int) -> int:
        """What the account has earned over the first `size` leaves."""
        return sum(credit.amount_wei for credit in self.credits if credit.index < size)

    def _credit(self, event: LogEvent, amount_wei: int) -> None:
        before_wei = self.credits[-1].total_wei if self.credits else 0
        units = event.units if event.type == PAYING[0] else None
        self.credits.append(
            Credit(
                event.index,
                event.time,
                event.type,
                event.subject,
                event.node,
                units,
                amount_wei,
                before_wei + amount_wei,
            )
        )


def _payments(event: LogEvent) -> Sequence[tuple[str, int]]:
    stated = event.data.get("payments")
    if not isinstance(stated, list):
        raise VerificationFailed(f"leaf {event.index} has no readable payments", f"of type {event.type}")
    return [_payment(event, one) for one in stated]


def _payment(event: LogEvent, stated: object) -> tuple[str, int]:
    if isinstance(stated, list) and len(stated) == 2 and all(isinstance(part, str) for part in stated):
        account, amount = stated
        if _ADDRESS.fullmatch(account) and _AMOUNT.fullmatch(amount):
            return account, int(amount)
    raise VerificationFailed(f"leaf {event.index} has no readable payments", f"{stated!r:.200}")


def _exported(line: bytes, event_type: str) -> LogEvent | None:
    row = json.loads(line)
    if row["type"] != event_type:
        return None
    names = ("index", "type", "subject", "time")
    return LogEvent.of({"schema_version": 1, **{name: row[name] for name in names}, "data": json.loads(row["data"])})
