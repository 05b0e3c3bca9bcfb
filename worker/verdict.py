"""The first line of a status: EARNING, IDLE or BLOCKED, why, and what to do.

In: what could be learnt of a node. Out: `Verdict`. What a person can mend is BLOCKED; what passes by itself is IDLE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from protocol.amount import format_amount
from protocol.api import PoolInfo, Standing
from protocol.http import todo_for_host
from protocol.reasons import RejectReason
from protocol.wire import ZERO_ADDRESS
from worker.folder import Contents
from worker.payment import OPEN_CASES, PaymentState
from worker.recent import RecentSubmission
from worker.state_file import Process

LONG_SECONDS = 120.0
"""A wait that is worth being the verdict, though work was accepted before."""


@dataclass(frozen=True)
class Facts:
    """None where nobody answered. `provider` is the zero address where the node isn't registered."""

    pool: PoolInfo | None
    provider: str | None
    allotment_wei: int | None
    recent: tuple[RecentSubmission, ...]
    here: Contents
    process: Process
    judged: tuple[RecentSubmission, ...] = ()
    """The last ten that were judged, with accepted and rejected standings only; they may be older than `recent`."""
    num_unjudged: int = 0
    is_chain_silent: bool = False
    with_config: str = ""
    """The option that a command to paste needs, with a space in front."""


@dataclass(frozen=True)
class Verdict:
    verdict: Literal["EARNING", "IDLE", "BLOCKED"]
    why: str
    todo: str = ""


def verdict_of(facts: Facts, now: float) -> Verdict:
    """The first that holds: setup, others, accusations, refusals, this process; else how much was accepted."""
    return next(_found(facts, now), _earning(facts))


def _found(facts: Facts, now: float) -> Iterator[Verdict]:
    yield from _setup(facts)
    yield from _outside(facts)
    yield from _work(facts)
    yield from _here(facts, now)


def _setup(facts: Facts) -> Iterator[Verdict]:
    pool = facts.pool
    if facts.provider == ZERO_ADDRESS:
        yield Verdict("BLOCKED", "the node isn't registered", RejectReason.NOT_REGISTERED.hint)
    if pool and facts.allotment_wei is not None and facts.allotment_wei < pool.min_allotment_wei:
        share = f"{format_amount(facts.allotment_wei)} of {format_amount(pool.min_allotment_wei)} credits"
        why = f"{share} allotted{_slashes(facts)}"
        yield Verdict("BLOCKED", why, _cause_first(facts) + RejectReason.UNDERSTAKED.hint)


def _outside(facts: Facts) -> Iterator[Verdict]:
    if facts.pool is None:
        todo = "check `coordinator_url`; a running worker goes on by itself once it answers"
        yield Verdict("BLOCKED", "the coordinator doesn't answer: what became of submissions isn't known", todo)
    elif facts.is_chain_silent:
        todo = "check `chain_url`; a running worker goes on by itself once it answers"
        yield Verdict("BLOCKED", "the chain's node doesn't answer: the worker stands still until it does", todo)
    elif facts.pool.paused:
        yield Verdict("IDLE", "the pool leases no tasks now", RejectReason.POOL_PAUSED.hint)


def _work(facts: Facts) -> Iterator[Verdict]:
    accused = [row for row in facts.recent if row.payment.state in OPEN_CASES]
    if accused:
        first = min(accused, key=lambda row: row.payment.urgency)
        todo = f"first {first.submission_id}: {first.payment.todo}"
        yield Verdict("BLOCKED", f"{len(accused)} of the last submissions are accused of forgery", todo)
    rejected = [*{row.submission_id: row for row in (*facts.judged, *facts.recent) if row.reason}.values()]
    if rejected and not _num_accepted(facts):
        last = rejected[-1]
        why = f"the last {len(rejected)} that were judged were refused: {last.reason}{_slashes(facts)}"
        yield Verdict("BLOCKED", why, f"{last.hint}; {_explaining(facts, last)}")


def _here(facts: Facts, now: float) -> Iterator[Verdict]:
    if not facts.process.is_running:
        yield Verdict("IDLE", "the worker isn't running", f"start it: `proofpool worker run{facts.with_config}`")
        return
    if facts.process.is_stale(now):
        state = facts.process.state
        seconds = now - state.written_time if state else 0.0
        yield Verdict(
            "BLOCKED", f"the worker gives no sign of life since {seconds:.0f} s", "stop it and start it again"
        )
    waiting = facts.process.state.waiting if facts.process.state else ()
    for one in waiting:
        if todo := todo_for_host(one.why):
            yield Verdict("BLOCKED", f"every request is refused: {one.why}", todo)
    longest = min(waiting, key=lambda one: one.since_time, default=None)
    if longest and (now - longest.since_time >= LONG_SECONDS or not _num_accepted(facts)):
        why = f"waiting since {now - longest.since_time:.0f} s for: {longest.obstacle} ({longest.why})"
        yield Verdict("IDLE", why, longest.todo)


def _earning(facts: Facts) -> Verdict:
    waiting = f"{facts.num_unjudged} wait for verdicts"
    if num_accepted := _num_accepted(facts):
        why = f"{num_accepted} of the last {len(facts.judged)} that were judged accepted"
        more = f", {waiting}" if facts.num_unjudged else ""
        return Verdict("EARNING", f"{why}{more}{_slashes(facts)}")
    if not facts.here.policy_versions:
        return Verdict("IDLE", "no policy version is here yet", "wait for the first version")
    if facts.num_unjudged and not facts.judged:
        return Verdict("IDLE", f"none of the last submissions is judged yet, {waiting}")
    return Verdict("IDLE", "no submission is accepted yet")


def _num_accepted(facts: Facts) -> int:
    return sum(row.standing == Standing.ACCEPTED for row in facts.judged)


def _cause_first(facts: Facts) -> str:
    """More stake behind a node that was slashed is lost as well, as long as nobody knows why."""
    slashed = [row for row in facts.recent if row.payment.state is PaymentState.SLASHED]
    return f"find the cause before you stake more: {_explaining(facts, slashed[-1])}; then " if slashed else ""


def _explaining(facts: Facts, row: RecentSubmission) -> str:
    return f"`proofpool worker explain {row.submission_id}{facts.with_config}`"


def _slashes(facts: Facts) -> str:
    """What the last submissions have cost, if anything."""
    lost = [row.payment.slashed_wei or 0 for row in facts.recent if row.payment.state is PaymentState.SLASHED]
    if not lost:
        return ""
    return f"; slashed {format_amount(sum(lost))} credits in {len(lost)} case{'s' if len(lost) > 1 else ''}"
