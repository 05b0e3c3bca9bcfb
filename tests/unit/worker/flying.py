"""Rollouts of an opened task, as the worker's loop makes them, without a submission."""

from __future__ import annotations

from protocol.rollouts import Rollout
from worker.flights import Flight
from worker.loop import Worker
from worker.work import Work


def rollouts_of(worker: Worker, work: Work) -> list[Rollout]:
    """Generated, proved and rewarded; nothing of it stays in the engine."""
    worker.board(work)
    flight = worker.fly()
    assert isinstance(flight, Flight)
    worker.flights.landed(flight)
    return worker.rollouts_of(flight)
