"""What the log says of judging: whose turn it was, who found what and when, and what became of each finding.

    draw.opened ─┬─▶ verdict.revealed     in time
                 └─▶ draw.missed ─▶ verdict.revealed     late
    verdicts ─▶ accepted | rejected ─▶ re-audit ─▶ case

In: events in order. Out: `Judging`, which `verifier/audit/reports/accountability.py` counts. It is what the
coordinator logged under heads that can't be changed any more; that a verdict is its seat's is what `audit verify`
checks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Strict

from protocol.api import LogEntry
from protocol.draw import JURY_ROUND
from protocol.reasons import Outcome
from protocol.wire import Address, UInt8, UInt32
from verifier.audit.log.event_data import ChainCopy, EventData, Paying, Readings, Reorged, kind_of, time_of

SETTLING = {"submission.accepted": True, "submission.rejected": False}
REAUDITS = ("reaudit.agreed", "reaudit.disagreed", "reaudit.undecided")
MAX_FINDINGS = 128
"""Verdicts on a submission that are taken in: a draw has 16 seats at most, so an honest log never has as many, even
where reorgs let it draw again."""
CASES = ("chain.CaseUpheld", "chain.CaseOverturned", "chain.CaseLapsed")


class _Turn(EventData):
    round: UInt32
    draw: UInt32
    seat: UInt32
    validator: Address


class _Revealed(_Turn):
    outcome: UInt8
    stamp_reviews: list[Annotated[tuple[Address, UInt32, bool], Strict(False)]] = []


class _Settled(Paying):
    provider: Address


class _ReauditEnd(Paying):
    accepted: bool | None


class TurnState(StrEnum):
    OPEN = "open"
    IN_TIME = "in_time"
    MISSED = "missed"
    LATE = "late"
    """Missed, and revealed afterwards."""


@dataclass(slots=True)
class Turn:
    """A seat's turn at a submission, opened at a chain second."""

    validator: str
    opened_time: int
    state: TurnState = TurnState.OPEN


@dataclass(frozen=True, slots=True)
class Finding:
    """A revealed verdict."""

    validator: str
    round: int
    outcome: Outcome

    @property
    def accepts(self) -> bool:
        return self.outcome is Outcome.ACCEPT


@dataclass(slots=True)
class Judged:
    """What became of a submission. `accepted` is what round 0 decided, `reaudit_accepted` what both rounds say."""

    findings: list[Finding] = field(default_factory=list)
    accepted: bool | None = None
    reaudit: str = ""
    """drawn, agreed, disagreed, undecided; empty where it wasn't drawn again."""
    reaudit_accepted: bool | None = None
    cases: list[tuple[int, str]] = field(default_factory=list)
    """(block, how it ended): all but the last are void, or were taken over."""

    @property
    def case(self) -> str:
        """upheld, overturned, or empty: a lapsed one says nothing."""
        ended = self.cases[-1][1] if self.cases else ""
        return ended if ended != "lapsed" else ""

    def contradicts(self, finding: Finding) -> dict[str, bool]:
        """Who has spoken about a finding, the lowest first, and whether against it."""
        said: dict[str, bool] = {}
        if self.accepted is not None:
            said["decision"] = finding.accepts is not self.accepted
        if self.reaudit_accepted is not None:
            said["reaudit"] = finding.accepts is not self.reaudit_accepted
        if self.case:
            said["case"] = finding.accepts if self.case == "upheld" else finding.outcome is Outcome.SLASH
        return said


class Judging:
    """Example: `for epoch, entry in log.events(): judging.note(entry)`."""

    def __init__(self) -> None:
        self.readings = Readings()
        self.submissions: dict[str, Judged] = {}
        self.turns: dict[tuple[str, int, int], Turn] = {}
        """By submission, round and draw."""
        self.seconds: dict[str, Counter[int]] = {}
        """By validator: how long its verdicts took from their draw, in chain seconds."""
        self.stamp_votes: dict[tuple[str, int, str], Counter[bool]] = {}
        """By submission, round and validator: reviews for and against its work stamp."""
        self.pay_wei = Counter[str]()
        self.seats: dict[str, set[int]] = {}
        self.reaudit_bps = 0

    def note(self, entry: LogEntry) -> None:
        """Take in one event; those about something else are passed over."""
        kind = kind_of(entry)
        if kind == "draw.opened":
            self._open(entry)
        elif kind == "draw.missed":
            self._miss(entry)
        elif kind == "verdict.revealed":
            self._reveal(entry)
        elif kind in SETTLING:
            self._settle(entry, accepted=SETTLING[kind])
        elif kind == "reaudit.drawn":
            self._judged(entry).reaudit = "drawn"
        elif kind in REAUDITS:
            self._end_reaudit(entry, kind.rpartition(".")[2])
        elif kind in CASES:
            self._end_case(entry, kind.removeprefix("chain.Case").lower())
        elif kind == "chain.reorged":
            self._forget(entry)
        elif kind == "chain.PoolCreated":
            self._take_terms(entry)

    def _judged(self, entry: LogEntry) -> Judged:
        return self.submissions.setdefault(entry.subject, Judged())

    def _open(self, entry: LogEntry) -> None:
        if (data := self.readings.read(_Turn, entry)) is not None:
            self.turns[entry.subject, data.round, data.draw] = Turn(data.validator, time_of(entry))
            self.seats.setdefault(data.validator, set()).add(data.seat)

    def _miss(self, entry: LogEntry) -> None:
        data = self.readings.read(_Turn, entry)
        turn = self.turns.get((entry.subject, data.round, data.draw)) if data is not None else None
        if turn is not None and turn.state is TurnState.OPEN:
            turn.state = TurnState.MISSED

    def _reveal(self, entry: LogEntry) -> None:
        data = self.readings.read(_Revealed, entry)
        if data is None or data.round >= JURY_ROUND or data.outcome not in tuple(Outcome):
            return
        judged = self._judged(entry)
        if len(judged.findings) >= MAX_FINDINGS:
            self.readings.pass_over(entry)
            return
        if any((one.validator, one.round) == (data.validator, data.round) for one in judged.findings):
            return  # a validator's first verdict of a round counts
        judged.findings.append(Finding(data.validator, data.round, Outcome(data.outcome)))
        self._note_turn(entry, data)
        for validator, round_number, agrees in data.stamp_reviews:
            if validator != data.validator:
                key = (entry.subject, round_number, validator)
                self.stamp_votes.setdefault(key, Counter())[agrees] += 1

    def _note_turn(self, entry: LogEntry, data: _Revealed) -> None:
        turn = self.turns.get((entry.subject, data.round, data.draw))
        if turn is None or turn.validator != data.validator:
            return
        turn.state = TurnState.IN_TIME if turn.state is TurnState.OPEN else TurnState.LATE
        took = max(0, time_of(entry) - turn.opened_time)
        self.seconds.setdefault(data.validator, Counter())[took] += 1

    def _settle(self, entry: LogEntry, *, accepted: bool) -> None:
        data, judged = self.readings.read(_Settled, entry), self._judged(entry)
        if data is None or judged.accepted is not None:
            return  # reinstated after a challenge: it was settled then
        judged.accepted = accepted
        self._pay(data, but_for={data.provider})

    def _end_reaudit(self, entry: LogEntry, state: str) -> None:
        if (data := self.readings.read(_ReauditEnd, entry)) is not None:
            judged = self._judged(entry)
            judged.reaudit, judged.reaudit_accepted = state, data.accepted
            self._pay(data, but_for=set())

    def _pay(self, data: Paying, but_for: set[str]) -> None:
        for account, amount in data.payments:
            if account not in but_for:
                self.pay_wei[account] += int(amount)

    def _end_case(self, entry: LogEntry, ended: str) -> None:
        if (data := self.readings.read(ChainCopy, entry)) is not None:
            self._judged(entry).cases.append((data.block, ended))

    def _forget(self, entry: LogEntry) -> None:
        """The chain dropped blocks: what cases came to in them is void."""
        if (data := self.readings.read(Reorged, entry)) is not None:
            for judged in self.submissions.values():
                if judged.cases:
                    judged.cases = [case for case in judged.cases if case[0] <= data.fork_block]

    def _take_terms(self, entry: LogEntry) -> None:
        copy = self.readings.read(ChainCopy, entry)
        config = copy.arguments.get("config") if copy is not None else None
        bps = config.get("reaudit_bps") if isinstance(config, dict) else None
        if isinstance(bps, str) and bps.isdecimal() and len(bps) <= len("10000"):
            self.reaudit_bps = int(bps)
