"""What the worker may use of its machine: short of it nothing is taken on, and what is at hand is finished."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.errors import ConfigError
from protocol.shardcast.folder import version_folder
from worker import bounds as bounds_module
from worker.bounds import Bounds, OutOfRoom
from worker.config import WorkerConfig
from worker.loop import Worker

GIB = 1 << 30


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set what every disk has left."""

    def set_free(num_bytes: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=num_bytes))

    return set_free


def test_a_disk_with_enough_left_is_room(tmp_path: Path, free: Callable[[int], None]) -> None:
    free(GIB)
    Bounds(min_free_disk_bytes=GIB).check(tmp_path)
    free(GIB - 1)
    with pytest.raises(OutOfRoom, match="nearly full") as refused:
        Bounds(min_free_disk_bytes=GIB).check(tmp_path)
    assert "1024 MiB" in refused.value.why and "min_free_disk_bytes" in refused.value.todo


def test_memory_within_the_bound_is_room(tmp_path: Path) -> None:
    used = bounds_module.memory_bytes()
    assert used > 1 << 20
    Bounds(max_memory_bytes=100 * used).check(tmp_path)
    with pytest.raises(OutOfRoom, match="more memory"):
        Bounds(max_memory_bytes=used // 2).check(tmp_path)


def test_memory_that_cant_be_measured_cant_be_bounded(
    make_config: Callable[..., WorkerConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Bounds.of(make_config(max_memory_bytes=GIB)).max_memory_bytes == GIB
    monkeypatch.setattr(bounds_module, "STATM", tmp_path / "none")
    assert Bounds.of(make_config()).max_memory_bytes is None
    with pytest.raises(ConfigError, match="how much memory"):
        Bounds.of(make_config(max_memory_bytes=GIB))


def test_short_of_disk_nothing_is_leased_and_it_goes_on_once_there_is_room(
    make_worker: Callable[..., Worker], pool: Any, make_clock: Any, free: Callable[[int], None]
) -> None:
    worker = make_worker(clock=(clock := make_clock(3)), bounds=Bounds(min_free_disk_bytes=GIB // 1024))
    free(0)
    worker.run(threading.Event())
    assert not pool.tasks and all(wait > 0 for wait in clock.waits)
    free(GIB)
    worker.turn()
    assert len(pool.received) == 1


def test_short_of_disk_what_is_at_hand_is_finished_and_nothing_fetched_ahead(
    make_worker: Callable[..., Worker], pool: Any, free: Callable[[int], None]
) -> None:
    worker = make_worker(bounds=Bounds(max_tasks=2, min_free_disk_bytes=GIB // 1024))
    worker.board(worker.open_work(worker.next_task()))
    free(0)
    worker.turn()
    assert len(pool.received) == len(pool.tasks) == 1


def test_short_of_disk_no_weights_are_fetched_but_those_that_nobody_needs_go(
    make_worker: Callable[..., Worker],
    pool: Any,
    make_model_folder: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = make_worker(bounds=Bounds(min_free_disk_bytes=GIB))
    folder = worker.folder.weights
    left = {"free": 2 * GIB}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=left["free"]))
    for number in (1, 2):
        pool.publish(make_model_folder(number), number)
        worker.weights.follow()
    worker.weights._in_use = 2
    pool.publish(make_model_folder(3), 3)
    left["free"] = 0
    with pytest.raises(OutOfRoom):
        worker.weights.follow()
    assert sorted(path.name for path in folder.glob("v*")) == ["v2"]
    left["free"] = 2 * GIB
    worker.weights.follow()
    assert version_folder(folder, 3).exists()


def test_what_was_never_fetched_to_its_end_goes_with_the_old_versions(
    make_worker: Callable[..., Worker], pool: Any, make_model_folder: Callable[[int], Path]
) -> None:
    worker = make_worker()
    old, new = worker.folder.weights / ".v0.parts", worker.folder.weights / ".v9.parts"
    for parts in (old, new):
        parts.mkdir()
        (parts / "0").write_bytes(b"shard")
    pool.publish(make_model_folder(1), 1)
    worker.weights.follow()
    worker.load_weights(1)
    assert not old.exists() and new.exists()
