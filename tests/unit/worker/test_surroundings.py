"""What runs beside a worker's loop: a state file and a lookout always, a server where it is wanted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from protocol.clock import SteadyClock, SystemClock
from protocol.errors import ConfigError
from worker import surroundings
from worker.activity import Activity
from worker.alerts import WEBHOOK_VARIABLE
from worker.config import WorkerConfig
from worker.state_file import process_of
from worker.status import NodeStatus
from worker.surroundings import surrounded

LOOKOUT = "lookout"


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.fixture
def activity() -> Activity:
    return Activity(SystemClock(), "0.1.0")


@pytest.fixture
def looks(make_status: Callable[..., NodeStatus], monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as the lookout has looked, without asking anybody."""
    looked = threading.Event()

    def look(config: WorkerConfig, clock: SystemClock) -> NodeStatus:
        looked.set()
        return make_status(earned_wei=7)

    monkeypatch.setattr(surroundings, "look", look)
    monkeypatch.delenv(WEBHOOK_VARIABLE, raising=False)
    return looked


def test_without_settings_there_are_a_state_file_and_a_lookout_and_no_server(
    make_config: Callable[..., WorkerConfig], activity: Activity, tmp_path: Path, looks: threading.Event
) -> None:
    """Who asks for the first time when nobody answers any more is told what the worker has seen."""
    with surrounded(make_config(), activity, SystemClock(), SteadyClock()):
        assert process_of(tmp_path / "data").is_running
        assert LOOKOUT in threads() and "health" not in threads()
        assert looks.wait(30)
    assert not process_of(tmp_path / "data").is_running and LOOKOUT not in threads()


def test_metrics_have_what_the_lookout_sees(
    make_config: Callable[..., WorkerConfig], activity: Activity, looks: threading.Event
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with surrounded(make_config(metrics_address=address), activity, SystemClock(), SteadyClock()):
        assert httpx.get(f"http://{address}/healthz").status_code == 200
        while 'proofpool_worker_credits_wei{state="earned"} 7.0' not in httpx.get(f"http://{address}/metrics").text:
            assert LOOKOUT in threads()
    assert LOOKOUT not in threads()


def test_a_second_worker_of_the_folder_is_refused_before_it_does_anything(
    make_config: Callable[..., WorkerConfig], activity: Activity, looks: threading.Event
) -> None:
    with (
        surrounded(make_config(), activity, SystemClock(), SteadyClock()),
        pytest.raises(ConfigError, match="another worker"),
        surrounded(make_config(), activity, SystemClock(), SteadyClock()),
    ):
        pass


def test_a_webhook_that_is_none_ends_the_start(
    make_config: Callable[..., WorkerConfig], activity: Activity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WEBHOOK_VARIABLE, "nonsense")
    with (
        pytest.raises(ConfigError, match="no webhook"),
        surrounded(make_config(), activity, SystemClock(), SteadyClock()),
    ):
        pass
    assert not process_of(tmp_path / "data").is_running
