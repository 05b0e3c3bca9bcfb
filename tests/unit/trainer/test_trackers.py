"""Trackers: the chosen library alone is imported, gets every number, and can end no run."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.errors import ConfigError
from trainer.trackers import NO_TRACKER, TrackerName, make_tracker

MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}


class Calls(ModuleType):
    """A library that remembers what it is told, and fails where it is told to."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.heard: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.fails: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Calls:
            self.heard.append((name, arguments, named))
            if name in self.fails:
                raise RuntimeError("no network")
            return self

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(name: TrackerName) -> Calls:
        found = Calls(MODULES[name])
        monkeypatch.setitem(sys.modules, MODULES[name], found)
        return found

    return put


def test_wandb_gets_a_run_of_a_fixed_id_and_the_step_as_a_column(library: Any, tmp_path: Path) -> None:
    calls = library("wandb")
    tracker = make_tracker("wandb", tmp_path, "pool", "one")
    tracker.log(3, {"entropy": 0.5})
    tracker.log(2, {"held_back_average": 0.25})  # an evaluation ends after later steps
    tracker.close()
    assert calls.heard == [
        ("init", (), {"project": "pool", "id": "one", "name": "one", "resume": "allow", "dir": str(tmp_path)}),
        ("define_metric", ("step",), {}),
        ("define_metric", ("*",), {"step_metric": "step"}),
        ("log", ({"step": 3, "entropy": 0.5},), {}),
        ("log", ({"step": 2, "held_back_average": 0.25},), {}),
        ("finish", (), {}),
    ]


def test_trackio_gets_numbers_at_their_steps(library: Any, tmp_path: Path) -> None:
    calls = library("trackio")
    tracker = make_tracker("trackio", tmp_path, "pool", "one")
    tracker.log(3, {"entropy": 0.5})
    tracker.close()
    assert calls.heard == [
        ("init", (), {"project": "pool", "name": "one", "resume": "allow"}),
        ("log", ({"entropy": 0.5},), {"step": 3}),
        ("finish", (), {}),
    ]


def test_tensorboard_has_a_curve_a_number(library: Any, tmp_path: Path) -> None:
    calls = library("tensorboard")
    tracker = make_tracker("tensorboard", tmp_path, "pool", "one")
    tracker.log(3, {"entropy": 0.5, "mfu": 0.1})
    tracker.close()
    assert calls.heard == [
        ("SummaryWriter", (str(tmp_path / "tensorboard"),), {"filename_suffix": ".0"}),
        ("add_scalar", ("entropy", 0.5, 3), {}),
        ("add_scalar", ("mfu", 0.1, 3), {}),
        ("flush", (), {}),
        ("close", (), {}),
    ]


def test_tensorboards_own_library_writes_files_that_hold_the_curve(tmp_path: Path) -> None:
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    for steps in ((1, 2), (3,)):  # started again, it adds a file
        tracker = make_tracker("tensorboard", tmp_path, "pool", "one")
        for step in steps:
            tracker.log(step, {"entropy": step / 2})
        tracker.close()
    found = {}
    for file in (tmp_path / "tensorboard").iterdir():
        for record in _records(file.read_bytes()):
            event = event_pb2.Event.FromString(record)
            found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    assert found == {("entropy", 1): 0.5, ("entropy", 2): 1.0, ("entropy", 3): 1.5}


def _records(data: bytes) -> list[bytes]:
    """TFRecord: length, its checksum, the record, its checksum."""
    records, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        records.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    return records


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_isnt_installed_is_said_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: TrackerName
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(ConfigError, match=f"{name} isn't installed") as refused:
        make_tracker(name, tmp_path, "pool", "one")
    assert f"pip install 'proofpool[{name}]'" in refused.value.todo


def test_without_a_name_nothing_is_imported_or_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in MODULES.values():
        monkeypatch.setitem(sys.modules, module, None)
    tracker = make_tracker(None, tmp_path, "pool", "one")
    assert tracker is NO_TRACKER
    tracker.log(1, {"entropy": 0.5})
    tracker.close()
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_fails_is_logged_and_asked_again(library: Any, tmp_path: Path) -> None:
    calls = library("trackio")
    tracker = make_tracker("trackio", tmp_path, "pool", "one")
    calls.fails = {"log"}
    with capture_logs() as logs:
        tracker.log(1, {"entropy": 0.5})
    assert [(line["event"], line["tracker"]) for line in logs] == [("tracker.failed", "trackio")]
    assert "no network" in logs[0]["why"]
    calls.fails = set()
    with capture_logs() as logs:
        tracker.log(2, {"entropy": 0.5})
    assert logs == [] and calls.heard[-1][2] == {"step": 2}
