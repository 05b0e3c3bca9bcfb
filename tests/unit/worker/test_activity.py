"""What a worker's log tells of it: waits, counts, speed; in a file that outlives it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from protocol.errors import ConfigError
from protocol.lock import FolderLock
from protocol.telemetry import configure_logging, get_logger
from tests.unit.worker.conftest import StillClock
from worker.activity import FORGET_SECONDS, MAX_LABELS, Activity
from worker.state_file import STALE_SECONDS, StateFile, process_of


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def activity(clock: StillClock) -> Activity:
    return Activity(clock, "0.1.0")


@pytest.fixture
def logged(activity: Activity) -> Iterator[io.StringIO]:
    """A process's log that the activity listens to."""
    out = io.StringIO()
    configure_logging("worker", "json", stream=out, observers=[activity.observe])
    yield out
    structlog.reset_defaults()


def test_the_log_is_what_is_counted(activity: Activity, clock: StillClock, logged: io.StringIO) -> None:
    log = get_logger()
    log.info("worker.started", node="0x" + "11" * 20, pool_id=3)
    log.info("weights.loaded", policy_version=4, way="patches", num_patches=1, seconds=0.1)
    log.info("task.leased", policy_version=4, counter=0, deadline=9)
    clock.time += 10
    log.info("task.generated", counter=0, num_units=500, seconds=9.0, reward_mean=0.5)
    log.info("submission.received", submission_id="0x" + "22" * 32, counter=0)
    log.error("submission.refused", submission_id="0x" + "33" * 32, counter=1, reason="duplicate", detail="")
    found = activity.state()
    assert (found.phase, found.pool_id, found.loaded_version, found.num_tokens) == ("working", 3, 4, 500)
    assert found.num_taken == {"load": 0, "patches": 1}
    assert found.tokens_per_second == 50.0
    assert (found.num_tasks["leased"], found.num_received, found.num_refused) == (1, 1, {"duplicate": 1})
    assert found.last_submission_id == "0x" + "33" * 32
    assert logged.getvalue().count("\n") == 6


def test_speed_is_that_of_the_last_ten_minutes(activity: Activity, clock: StillClock) -> None:
    activity.observe("task.generated", {"num_units": 6000})
    clock.time += 600
    assert activity.state().tokens_per_second == 10.0
    clock.time += 1
    assert activity.state().tokens_per_second == 0.0


def test_a_wait_is_told_while_it_lasts(activity: Activity, clock: StillClock) -> None:
    down = {"obstacle": "the coordinator doesn't answer", "why": "refused", "todo": "start it", "since_seconds": 0.0}
    activity.observe("waiting", down)
    clock.time += 40
    (found,) = activity.state().waiting
    assert clock.time - found.since_time == 40.0 and (found.why, found.todo) == ("refused", "start it")
    assert activity.state().waited_seconds == {"the coordinator doesn't answer": 40.0}
    assert activity.state().progress_time == clock.time - 40, "a wait is no progress"
    activity.observe("waited", {"obstacle": "the coordinator doesn't answer", "seconds": 41.5})
    assert activity.state().waiting == ()
    assert activity.state().waited_seconds == {"the coordinator doesn't answer": 41.5}


def test_a_wait_that_nobody_speaks_of_any_more_is_forgotten(activity: Activity, clock: StillClock) -> None:
    activity.observe("waiting", {"obstacle": "refused: rate_limited"})
    clock.time += FORGET_SECONDS + 1
    assert activity.state().waiting == ()


def test_obstacles_without_end_make_no_labels_without_end(activity: Activity) -> None:
    for number in range(100):
        activity.observe("waited", {"obstacle": f"version {number} isn't here", "seconds": 1.0})
    counted = activity.state().waited_seconds
    assert len(counted) == MAX_LABELS + 1 and counted["other"] == 100 - MAX_LABELS


def test_a_process_is_seen_from_outside_until_it_ends_and_after(
    activity: Activity, clock: StillClock, tmp_path: Path
) -> None:
    assert process_of(tmp_path).state is None and not process_of(tmp_path).is_running
    stopping = StillClock(num_waits=1)
    with StateFile(tmp_path, activity, stopping):
        found = process_of(tmp_path)
        assert found.is_running and found.state is not None and found.state.phase == "joining"
        assert not found.is_stale(clock.time) and found.is_stale(clock.time + STALE_SECONDS + 1)
        with pytest.raises(ConfigError, match="another worker"):
            StateFile(tmp_path, activity, clock)
        activity.observe("worker.stopped", {})
    ended = process_of(tmp_path)
    assert not ended.is_running and ended.state is not None and ended.state.phase == "stopped"
    assert not ended.is_stale(clock.time + 1e6), "who has ended isn't hanging"


def test_asking_who_holds_a_folder_takes_nothing(tmp_path: Path) -> None:
    assert not FolderLock.is_held(tmp_path)
    with FolderLock(tmp_path, "worker"):
        assert FolderLock.is_held(tmp_path) and FolderLock.is_held(tmp_path)
    assert not FolderLock.is_held(tmp_path)
    FolderLock(tmp_path, "worker").close()


def test_a_full_disk_ends_no_work(
    activity: Activity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: io.StringIO
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("worker.state_file.write_atomically", full)
    with StateFile(tmp_path, activity, StillClock(num_waits=1)):
        pass
    assert "state.unwritten" in logged.getvalue()
