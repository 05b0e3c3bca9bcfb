"""A status for people: the verdict in the first line, then what it rests on; amounts in credits.

In: `NodeStatus`. Out: lines. Ids are whole, to be copied into `proofpool trace` or `proofpool worker explain`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext

from protocol.amount import format_amount
from protocol.clock import SystemClock
from protocol.events import utc
from protocol.plain import plain
from worker.activity import WINDOW_SECONDS
from worker.status import NodeStatus


def print_status(status: NodeStatus) -> None:
    for line in status_lines(status):
        print(line)


def watch_status(look: Callable[[], NodeStatus], interval_seconds: float, *, as_json: bool) -> None:
    """Until Ctrl-C: a view that is drawn anew on a terminal, elsewhere one after the other."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    clock, never = SystemClock(), threading.Event()
    is_view = sys.stdout.isatty() and not as_json
    with Live(console=Console(), auto_refresh=False, screen=True) if is_view else nullcontext() as view:
        while True:
            found = look()
            if view is None:
                print(found.model_dump_json() if as_json else "\n".join(status_lines(found)), flush=True)
            else:
                view.update(Text("\n".join([utc(int(found.time)), *status_lines(found)])), refresh=True)
            clock.wait(never, interval_seconds)


def status_lines(status: NodeStatus) -> Iterator[str]:
    """What somebody else wrote into it steers no terminal."""
    yield from map(plain, _lines(status))


def _lines(status: NodeStatus) -> Iterator[str]:
    yield f"{status.verdict}: {status.why}"
    if status.todo:
        yield f"  do: {status.todo}"
    for silent in status.unanswered:
        yield f"  no answer: {silent}"
    for who, time in (("coordinator", status.as_of.coordinator), ("chain", status.as_of.chain)):
        if time is None:
            yield f"  the {who}'s part is unknown"
        elif time < status.time - 1:
            yield f"  the {who}'s part is of {utc(int(time))}, {_ago(status, time)}"
    for name, value in _rows(status):
        yield f"{name:<11} {value}"
    yield from _recent(status)


def _rows(status: NodeStatus) -> Iterator[tuple[str, str]]:
    yield "version", f"{status.version}; {_weights(status)}"
    yield "process", _process(status)
    yield from (("waiting", line) for line in _waiting(status))
    yield "last", _last(status)
    yield "accepted", _share(status)
    yield "credits", _credits(status)
    yield "next payout", _payout(status)
    yield "node", f"{status.node} of provider {status.provider or 'unknown'}"
    least = "" if status.min_allotment_wei is None else f", the pool asks for {format_amount(status.min_allotment_wei)}"
    yield "allotment", credits_text(status.allotment_wei) + least
    yield "at hand", f"{status.num_leases} leased, {status.num_pending} waiting to be sent"


def _weights(status: NodeStatus) -> str:
    newest = "unknown" if status.pool_version is None else f"v{status.pool_version}"
    here = ", ".join(f"v{version}" for version in status.local_versions) or "none"
    return f"policy version {newest}, here {here}" + (f": {status.lag} behind" if status.lag else "")


def _process(status: NodeStatus) -> str:
    process = status.process
    if not process.is_running:
        last = process.written_time
        return "not running" + ("" if last is None else f"; its last sign of life was {_ago(status, last)}")
    if process.started_time is None:
        return "running"
    runs_seconds = status.time - process.started_time
    window = "over the last ten minutes" if runs_seconds > WINDOW_SECONDS else "since then"
    since = f"{utc(int(process.started_time))}, {_span(runs_seconds)}"
    return f"{process.phase}, pid {process.pid}, since {since}, {process.tokens_per_second:.1f} tokens/s {window}"


def _waiting(status: NodeStatus) -> Iterator[str]:
    for one in status.process.waiting:
        yield f"{one.obstacle}: {one.why}, since {_span(status.time - one.since_time)}" + (
            f"; do: {one.todo}" if one.todo else ""
        )


def _last(status: NodeStatus) -> str:
    last = status.last_submission
    if last is None:
        return "nothing handed in yet"
    received = "" if last.received_time is None else f", received at {utc(last.received_time)}"
    settled = "" if last.settled_time is None else f", decided at {utc(last.settled_time)}"
    return f"{last.standing}{f' for {last.reason}' if last.reason else ''}{received}{settled}"


def _share(status: NodeStatus) -> str:
    if status.accepted_share is None:
        return "none of the last submissions is judged yet" + _unjudged(status) + _newest(status)
    share = f"{status.num_accepted} of the last {status.num_judged} that were judged"
    return f"{status.accepted_share:.0%}: {share}{_unjudged(status)}{_newest(status)}"


def _newest(status: NodeStatus) -> str:
    time = status.accepted_time
    return "" if time is None else f"; the newest was accepted at {utc(time)}, {_ago(status, time)}"


def _unjudged(status: NodeStatus) -> str:
    return f", {status.num_unjudged} wait for verdicts" if status.num_unjudged else ""


def _credits(status: NodeStatus) -> str:
    if status.earned_wei is None:
        return "unknown"
    amounts = (
        (status.claimed_wei, "paid"),
        (status.claimable_wei, "claimable"),
        (status.pending_wei, "pending"),
        (status.withheld_wei, "withheld by cases"),
    )
    parts = [f"{format_amount(amount)} {word}" for amount, word in amounts if amount is not None]
    more = f"; {format_amount(status.unrooted_wei)} more wait for a root" if status.unrooted_wei else ""
    todo = " (`proofpool provider claim`)" if status.claimable_wei else ""
    return f"{format_amount(status.earned_wei)} earned: {', '.join(parts)}{more}{todo}"


def _payout(status: NodeStatus) -> str:
    payout = status.next_payout
    if payout is None:
        return "unknown" if status.earned_wei is None else "nothing waits for its window"
    return f"{credits_text(payout.amount_wei)}, claimable in {_span(payout.in_seconds)}, at {utc(payout.time)}"


def _recent(status: NodeStatus) -> Iterator[str]:
    for row in status.recent:
        reason = "" if row.reason is None else f"{row.reason}: {row.hint}"
        units = "" if row.num_units is None else f"{row.num_units} units"
        counted = f"v{row.policy_version} #{row.counter}"
        words = row.payment.words + (f"; {reason}" if reason else "")
        yield f"{row.submission_id}  {counted:<8} {row.standing:<10} {units:<11} {words}".rstrip()
        if row.payment.todo:
            yield f"  do: {row.payment.todo}"


def credits_text(amount_wei: int | None) -> str:
    return "unknown" if amount_wei is None else f"{format_amount(amount_wei)} credits"


def _ago(status: NodeStatus, time: float) -> str:
    return f"{_span(status.time - time)} ago"


def _span(seconds: float) -> str:
    """Two units at most: 40 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    left = max(0, round(seconds))
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if left >= size:
            rest = left % size // small
            return f"{left // size} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{left} s"
