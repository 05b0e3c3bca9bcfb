"""What happened to a hash, in one sentence, out of the log's events alone.

In: `Related` events. Out: `Fate`: a status, the reason's code, a sentence with both. `proofpool trace`, `proofpool
audit show` and `GET /v1/trace/{subject}` answer with it: a node, a provider and an outsider read the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from protocol.amount import MAX_WEI, format_amount
from protocol.events import BATCHED, RECEIVED, LogEvent, Related, standing_events, utc
from protocol.reasons import RejectReason

HEADLINES = {
    "leased": "Leased",
    "expired": "Expired",
    "abandoned": "Handed back",
    "reorged": "Void",
    "forced": "Forced in",
    "refused": "Refused",
    "pending": "Pending",
    "disputed": "Undecided",
    "accepted": "Accepted",
    "rejected": "Rejected",
    "challenged": "Challenged",
    "accused": "Accused",
    "before_jury": "Before a jury",
    "slashed": "Slashed",
    "acquitted": "Acquitted",
    "batched": "Batched",
    "consumed": "Consumed",
    "published": "Published",
}


LEASED = "leased at"
EXTENDED = "given until"
"""How the story of a task begins; that of what was handed in for it begins later."""


class Fate(BaseModel):
    """`status` is a key of `HEADLINES`, or the type of the last event; `reason` is a code where something has one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    status: str
    reason: str | None
    sentence: str


@dataclass
class _Telling:
    """The story so far. A case before the Court outweighs what the coordinator settled, while it stands."""

    status: str = ""
    reason: str | None = None
    case: tuple[str, str | None] | None = None
    clauses: list[str] = field(default_factory=list)
    was_drawn: bool = False

    @property
    def now(self) -> tuple[str, str | None]:
        return self.case or (self.status, self.reason)

    def settle(self, status: str, clause: str, reason: str | None = None) -> None:
        self.status, self.reason = status, reason
        self.clauses.append(clause)

    def rule(self, status: str, clause: str, reason: str | None) -> None:
        self.case = (status, reason)
        self.clauses.append(clause)


def fate_of(related: Related) -> Fate:
    """The one wording. `related` has at least one event."""
    events = list(standing_events(related.events))
    about = _named(related, events)
    if about is None:
        return _last_of(related)
    telling = _Telling()
    for event in events:
        if (tell := _TELL.get(event.type)) is not None:
            tell(telling, event)
    if not telling.clauses:
        return _last_of(related)
    status, reason = telling.now
    clauses = [*telling.clauses, *_use_of(related, events)]
    sentence = f"{_headline(status, reason)}: {about} was {_joined(clauses)}{_outlook(telling)}."
    return Fate(status=status, reason=reason, sentence=sentence)


def _named(related: Related, events: Sequence[LogEvent]) -> str | None:
    """Whom the sentence is about; None for what has no story of its own."""
    node = next((event.node for event in events if event.node is not None), None)
    of_node = f" of node {node}" if node else ""
    if related.submission_id is not None:
        return f"submission {related.submission_id}{of_node}"
    types = {event.type for event in events}
    if related.task_id is not None:
        return f"task {related.task_id}{of_node}"
    if types & {"submission.refused", "chain.IntakeForced"}:
        return f"submission {related.subject}{of_node}"
    if BATCHED in types:
        batch = next(event for event in events if event.type == BATCHED)
        return f"batch {related.subject} of step {batch.number('step')}"
    if types & {"chain.WeightsPublished", "weights.announced"}:
        versions = (event.number("version") or event.number("policy_version") or 0 for event in events)
        return f"policy version {max(versions)} with manifest {related.subject}"
    return None


def _last_of(related: Related) -> Fate:
    last, count = related.events[-1], len(related.events)
    leaves = "1 leaf" if count == 1 else f"{count} leaves"
    sentence = f"The log has {leaves} about {related.subject}; the last is {last.type} at {utc(last.time)}."
    return Fate(status=last.type, reason=last.reason, sentence=sentence)


def _headline(status: str, reason: str | None) -> str:
    if reason is None:
        return HEADLINES[status]
    return f"{HEADLINES[status]} {'of' if status == 'acquitted' else 'for'} {_with_hint(reason)}"


def _with_hint(reason: str) -> str:
    """The reason's code, and the words that go with it everywhere."""
    return f"{reason} ({RejectReason(reason).hint})" if reason in set(RejectReason) else reason


def _joined(clauses: Sequence[str]) -> str:
    """ "a", "a, then b", "a, b, then c"."""
    return clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])}, then {clauses[-1]}"


def _for(reason: str | None) -> str:
    return "" if reason is None else f" for {reason}"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _outlook(telling: _Telling) -> str:
    """What it waits for."""
    if telling.now[0] == "leased":
        return ", and isn't handed in yet"
    if telling.now[0] != "pending":
        return ""
    return ", and waits for verdicts" if telling.was_drawn else ", and waits for seats to be drawn"


def _use_of(related: Related, events: Sequence[LogEvent]) -> list[str]:
    """What became of an accepted submission's groups."""
    if related.submission_id is None:
        return []
    unused = Counter(event.reason for event in events if event.type == "group.unused" and event.reason)
    left = [f"left with {_count(count, 'group')} unused for {why}" for why, count in unused.items()]
    refused = {event.subject for event in events if event.type == "batch.refused"}
    steps = {e.subject: e.number("step") for e in events if e.type == BATCHED and e.subject not in refused}
    consumed = {event.subject for event in events if event.type == "batch.consumed"}
    used = [
        f"{'trained on' if root in consumed else 'handed to the trainer'} in step {step}"
        for root, step in steps.items()
    ]
    return [*left, *used]


def _leased(telling: _Telling, event: LogEvent) -> None:
    telling.settle("leased", f"{LEASED} {utc(event.time)}")


def _renewed(telling: _Telling, event: LogEvent) -> None:
    """Told once, with the last deadline; of no interest once something came in."""
    telling.clauses = [clause for clause in telling.clauses if not clause.startswith(EXTENDED)]
    deadline = event.number("deadline")
    telling.clauses.append(f"{EXTENDED} {'later' if deadline is None else utc(deadline)}")


def _over(status: str, clause: str) -> Callable[[_Telling, LogEvent], None]:
    return lambda telling, event: telling.settle(status, clause)


def _received(telling: _Telling, event: LogEvent) -> None:
    telling.clauses = [clause for clause in telling.clauses if not clause.startswith((LEASED, EXTENDED))]
    telling.settle("pending", f"received at {utc(event.time)}")


def _refused(telling: _Telling, event: LogEvent) -> None:
    telling.settle("refused", f"refused at {utc(event.time)}{_for(event.reason)}", event.reason)


def _accepted(telling: _Telling, event: LogEvent) -> None:
    if telling.status == "challenged":
        return telling.settle("accepted", "accepted after all")
    earned = f"{format_amount(event.amount_wei or 0)} credits for {event.provider or 'nobody'}"
    return telling.settle("accepted", f"accepted with {event.units or 0} units, {earned}")


def _rejected(telling: _Telling, event: LogEvent) -> None:
    again = " after all" if telling.status == "challenged" else ""
    telling.settle("rejected", f"rejected{_for(event.reason)}{again}", event.reason)


def _challenged(telling: _Telling, event: LogEvent) -> None:
    telling.settle("challenged", f"challenged by a re-audit{_for(event.reason)}", event.reason)


def _reaudited(clause: str) -> Callable[[_Telling, LogEvent], None]:
    return lambda telling, event: telling.clauses.append(clause)


def _drawn(telling: _Telling, event: LogEvent) -> None:
    telling.was_drawn = True


def _forced(telling: _Telling, event: LogEvent) -> None:
    clause = f"forced in on chain at {utc(event.time)}"
    if telling.status:
        telling.clauses.append(clause)
    else:
        telling.settle("forced", clause)


def _accused(telling: _Telling, event: LogEvent) -> None:
    telling.rule("accused", f"accused before the Court{_for(event.reason)}", event.reason)


def _appealed(telling: _Telling, event: LogEvent) -> None:
    telling.rule("before_jury", f"brought before a jury by the appeal of {event.text('appellant')}", telling.now[1])


def _brought(telling: _Telling, event: LogEvent) -> None:
    clause = f"challenged before a jury by {event.text('challenger')}{_for(event.reason)}"
    telling.rule("before_jury", clause, event.reason)


def _upheld(telling: _Telling, event: LogEvent) -> None:
    deducted = event.text("deducted")
    earnings = "" if deducted in ("0", "?") else f" and {_credits(deducted)} of earnings"
    telling.rule("slashed", f"slashed by {_credits(event.text('slashed'))} of stake{earnings}", telling.now[1])


def _credits(wei: str) -> str:
    """What the log has as text; what is no amount stays as it is."""
    is_amount = wei.isascii() and wei.isdecimal() and len(wei) <= len(str(MAX_WEI))
    return f"{format_amount(int(wei)) if is_amount else wei} credits"


def _overturned(telling: _Telling, event: LogEvent) -> None:
    telling.rule("acquitted", "acquitted by the jury", telling.now[1])


def _lapsed(telling: _Telling, event: LogEvent) -> None:
    telling.case = None
    telling.clauses.append("let go, as the case lapsed")


def _batched(telling: _Telling, event: LogEvent) -> None:
    """The batch's own story: a submission's has its groups' use at the end."""
    if telling.status in ("", "batched"):
        groups = event.data.get("groups")
        count = len(groups) if isinstance(groups, list) else 0
        telling.settle("batched", f"handed to the trainer with {_count(count, 'group')} at {utc(event.time)}")


def _consumed(telling: _Telling, event: LogEvent) -> None:
    if telling.status == "batched":
        telling.settle("consumed", f"trained on at {utc(event.time)}")


def _refused_batch(telling: _Telling, event: LogEvent) -> None:
    if telling.status == "batched":
        telling.settle("refused", f"refused by the trainer over submission {event.hash('submission_id')}")


def _published(telling: _Telling, event: LogEvent) -> None:
    telling.settle("published", f"published on chain at {utc(event.time)}")


def _announced(telling: _Telling, event: LogEvent) -> None:
    telling.settle("published", f"announced by the trainer at {utc(event.time)}")


_TELL: dict[str, Callable[[_Telling, LogEvent], None]] = {
    "task.leased": _leased,
    "task.renewed": _renewed,
    "task.expired": _over("expired", "not handed in by its deadline"),
    "task.abandoned": _over("abandoned", "handed back by its node"),
    "task.reorged": _over("reorged", "voided, as the chain dropped its beacon"),
    RECEIVED: _received,
    "submission.refused": _refused,
    "submission.accepted": _accepted,
    "submission.rejected": _rejected,
    "submission.disputed": _over("disputed", "left undecided, as no seat was left to judge it"),
    "submission.challenged": _challenged,
    "draw.opened": _drawn,
    "reaudit.agreed": _reaudited("confirmed by a re-audit"),
    "reaudit.disagreed": _reaudited("contradicted by a re-audit"),
    "reaudit.undecided": _reaudited("judged again without a result"),
    "chain.IntakeForced": _forced,
    "chain.Accused": _accused,
    "chain.Appealed": _appealed,
    "chain.Challenged": _brought,
    "chain.CaseUpheld": _upheld,
    "chain.CaseOverturned": _overturned,
    "chain.CaseLapsed": _lapsed,
    BATCHED: _batched,
    "batch.consumed": _consumed,
    "batch.refused": _refused_batch,
    "chain.WeightsPublished": _published,
    "weights.announced": _announced,
}
