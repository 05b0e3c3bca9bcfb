"""What a run's observer makes of the trainer's metrics."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from protocol.client import CoordinatorClient
from testnet.observer import Observer


def test_steps_are_taken_in_once_whole_and_without_evaluations(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("not up yet")

    metrics = tmp_path / "metrics.jsonl"
    coordinator = CoordinatorClient("http://coordinator", transport=httpx.MockTransport(refuse))
    observer = Observer(coordinator, tmp_path, metrics)
    observer.look()
    assert observer.figures == []
    first, evaluation, second = ({"step": 1, "objective": 0.1}, {"step": 0, "held_back_average": 0.5}, '{"step": 2, ')
    metrics.write_text(f"{json.dumps(first)}\n{json.dumps(evaluation)}\n{second}")
    for _ in range(2):
        observer.look()
        assert observer.figures == [first]
    with metrics.open("a") as file:
        file.write('"objective": 0.2}\n')
    observer.look()
    assert [figures["step"] for figures in observer.figures] == [1, 2]
