"""Tasks whose rollouts are in the engine: several at once, of one policy version, told apart by their requests.

    board(work, requests) ─▶ engine.step() ─▶ note(completions) ─▶ arrived(): a task whose rollouts are all there

In: opened tasks, completions as they finish. Out: flights that have arrived, the oldest first; each stays until it is
`landed`, so that nothing is generated twice where its file can't be written yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from protocol.engines.base import Completion, Request
from protocol.errors import ProofpoolError
from worker.outbox import Entry
from worker.work import Work

Key = tuple[bytes, int]
"""A request's seed and sample: no two tasks share a seed."""


@dataclass(eq=False)
class Flight:
    """One task in the engine. `sealed` is its signed submission and file, once made."""

    work: Work
    num_requests: int
    started: float
    completions: list[Completion] = field(default_factory=list)
    sealed: tuple[Entry, bytes] | None = None

    @property
    def has_arrived(self) -> bool:
        return len(self.completions) == self.num_requests


class Flights:
    """Example: `flights.board(work, work.requests, now)`, then `flights.note(engine.step())` until one has arrived."""

    def __init__(self) -> None:
        self._flights: tuple[Flight, ...] = ()  # never changed in place: threads look at it
        self._of_request: dict[Key, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def task_ids(self) -> frozenset[str]:
        return frozenset(flight.work.task_id for flight in self._flights)

    @property
    def counters(self) -> list[int]:
        return [flight.work.task.counter for flight in self._flights]

    def board(self, work: Work, requests: Sequence[Request], now: float) -> None:
        """One more task. Raises ProofpoolError where its policy version isn't that of the others."""
        for other in self._flights:
            if other.work.task.policy_version != work.task.policy_version:
                versions = f"{work.task.policy_version} beside {other.work.task.policy_version}"
                raise ProofpoolError("two policy versions can't be in the engine at once", versions)
        flight = Flight(work, len(requests), now)
        self._flights = (*self._flights, flight)
        self._of_request |= {_key(request): flight for request in requests}

    def note(self, completions: Iterable[Completion]) -> None:
        """Take in what has finished. Raises ProofpoolError for what nobody asked for, or what came before."""
        for completion in completions:
            flight = self._of_request.pop(_key(completion.request), None)
            if flight is None:
                raise ProofpoolError("the engine finished what nobody asked for", f"sample {completion.sample}")
            flight.completions.append(completion)

    def arrived(self) -> Flight | None:
        """The oldest task whose rollouts are all there."""
        return next((flight for flight in self._flights if flight.has_arrived), None)

    def landed(self, flight: Flight) -> None:
        """Its submission lies in the outbox."""
        self._flights = tuple(other for other in self._flights if other is not flight)

    def drop(self) -> None:
        """Forget them all: the engine has aborted."""
        self._flights = ()
        self._of_request.clear()


def _key(request: Request) -> Key:
    return request.seed, request.sample
