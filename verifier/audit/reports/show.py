"""`proofpool audit show`: what happened to a hash, out of the log itself: the leaves about it, and what they add up to.

In: a subject, the log as it is served, the chain's heads where there is a chain. Out: `Showing`. Nothing here comes
from what the coordinator says beside its log; the sentence is that of `proofpool trace` and `GET /v1/trace/{subject}`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.api import LogEntry
from protocol.errors import NotFound, VerificationFailed
from protocol.events import LogEvent, Related, related_events, standing_events, utc
from protocol.fate import Fate, fate_of
from protocol.reasons import Outcome
from verifier.audit.log.anchors import Anchors
from verifier.audit.log.copies import Copies
from verifier.audit.log.served_log import ServedLog
from verifier.audit.step import MARKS, Conclusion, StepState, StillOpen

NO_CHAIN = "nothing trusted to hold it against: give --chain"
NOT_ALL_READ = "as far as the coordinator tells: --complete looks for leaves that it left out"


@dataclass(frozen=True)
class OnChain:
    """What leaves are held against: heads, and the events that some of them copy."""

    anchors: Anchors
    copies: Copies


@dataclass(frozen=True)
class Leaf:
    """A leaf about the subject; `epoch` is the one that anchors it, `why` says why it isn't ✓."""

    event: LogEvent
    leaf_hash: str
    state: StepState
    epoch: int | None
    why: str

    def as_json(self) -> dict[str, Any]:
        state = {"state": self.state.value, "why": self.why, "epoch": self.epoch, "leaf_hash": self.leaf_hash}
        return state | {"reason": self.event.reason, "event": self.event.model_dump()}

    def line(self) -> str:
        event = self.event
        anchored = f"epoch {self.epoch}" if self.epoch is not None else "-"
        place = f"{MARKS[self.state]} leaf {event.index:<6} {anchored:<10} {utc(event.time)}  {event.type:<20}"
        why = [self.why] if self.state is StepState.FAILED else []
        return "  ".join([place, *_facts(event), *why]).rstrip()


@dataclass(frozen=True)
class Showing(Conclusion):
    """What was found. `anchor` names the chain that the leaves were held against, empty without one.

    `left_out` are leaves about the subject that the coordinator didn't show, `read` says whether they were looked for.
    """

    subject: str
    leaves: tuple[Leaf, ...]
    fate: Fate
    anchor: str
    as_of: str
    read: str = NOT_ALL_READ
    left_out: tuple[int, ...] = ()

    @property
    def has_failed(self) -> bool:
        return bool(self.left_out) or any(leaf.state is StepState.FAILED for leaf in self.leaves)

    @property
    def what_happened(self) -> str:
        """The sentence; where a leaf doesn't hold, that nothing can be told."""
        if not self.has_failed:
            return self.fate.sentence
        wrong = [leaf.event.index for leaf in self.leaves if leaf.state is StepState.FAILED]
        return f"What happened can't be told from this log: leaves {_listed(wrong, self.left_out)}."

    def completed(self, related: Related, events: Iterable[tuple[int, LogEntry]], num_leaves: int) -> Showing:
        """With the leaves of the whole log that are about the subject, and weren't among `related`."""
        shown = {event.index for event in related.events}
        whole = (LogEvent.of(entry.event) for _, entry in events)
        missing = tuple(event.index for event in whole if event.index not in shown and related.includes(event))
        return replace(self, left_out=missing, read=f"the whole log of {num_leaves} leaves was read")

    def as_json(self) -> dict[str, Any]:
        told = self.fate.model_dump() if not self.has_failed else None
        return {
            "schema_version": 1,
            "subject": self.subject,
            "result": self.result,
            "anchor": self.anchor,
            "as_of": self.as_of,
            "read": self.read,
            "left_out": list(self.left_out),
            "leaves": [leaf.as_json() for leaf in self.leaves],
            "what_happened": told,
        }

    def lines(self) -> Iterator[str]:
        """For a terminal: a line a leaf, how far it can be trusted, and last what happened."""
        yield from (leaf.line() for leaf in self.leaves)
        states = Counter(leaf.state for leaf in self.leaves)
        counts = f"{states[StepState.OK]} of {len(self.leaves)} leaves anchored"
        yield f"as of: {self.as_of}"
        yield f"{self.result_line}; {counts}; {self.read}"
        yield self.what_happened


def tell(subject: str, log: ServedLog, chain: OnChain | None, anchor: str, as_of: str) -> tuple[Showing, Related]:
    """Raises NotFound where the log has nothing about it."""
    related = related_events(log, subject)
    if not related.events:
        raise NotFound("the log has nothing about this", subject, "GET /v1/submissions lists submissions")
    standing = tuple(standing_events(related.events))
    leaves = tuple(_leaf(event, log, chain, standing) for event in related.events)
    return Showing(subject, leaves, fate_of(related), anchor, as_of), related


def _leaf(event: LogEvent, log: ServedLog, chain: OnChain | None, standing: Sequence[LogEvent]) -> Leaf:
    leaf_hash = log.leaf_hashes[event.index]
    if (fault := log.faults.get(event.index)) is not None:
        return Leaf(event, leaf_hash, StepState.FAILED, None, str(fault))
    if chain is None:
        return Leaf(event, leaf_hash, StepState.OPEN, None, NO_CHAIN)
    try:
        if event.is_chain_copy:
            chain.copies.check(event, is_void=event not in standing, standing=standing)
        return Leaf(event, leaf_hash, StepState.OK, chain.anchors.epoch_of(event.index, leaf_hash), "")
    except VerificationFailed as fault:
        return Leaf(event, leaf_hash, StepState.FAILED, None, str(fault))
    except StillOpen as reason:
        return Leaf(event, leaf_hash, StepState.OPEN, None, str(reason))


def _facts(event: LogEvent) -> Iterator[str]:
    """Who, how much, and why, as far as the event names them."""
    for name in ("node", "provider", "validator"):
        if (address := getattr(event, name)) is not None:
            yield f"{name} {address}"
    counts = {"seat": event.seat, "step": event.number("step"), "block": event.block, "units": event.units}
    counts["amount_wei"] = event.amount_wei
    yield from (f"{name} {count}" for name, count in counts.items() if count is not None)
    outcome = event.number("outcome") if event.type == "verdict.revealed" else None
    if outcome in set(Outcome):
        yield Outcome(outcome).name.lower()
    if event.reason is not None:
        yield f"for {event.reason}"


def _listed(wrong: list[int], missing: tuple[int, ...]) -> str:
    found = [f"{', '.join(map(str, wrong))} don't hold"] if wrong else []
    return "; ".join([*found, *([f"{', '.join(map(str, missing))} were left out"] if missing else [])])
