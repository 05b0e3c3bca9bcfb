"""Who is woken, for what, and how often: once when it begins, once when it is over, whatever happens in between."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from protocol.client import UNUSABLE
from protocol.errors import ConfigError, KeyFailure
from tests.unit.worker.conftest import StillClock
from worker.alerts import WEBHOOK_VARIABLE, Lookout, webhook_of
from worker.config import WorkerConfig
from worker.payment import Payment, PaymentState
from worker.recent import RecentSubmission
from worker.status import NodeStatus

URL = "https://hooks.example/T0K3N"


def row(number: int, standing: str = "accepted", state: PaymentState = PaymentState.CLAIMABLE) -> RecentSubmission:
    return RecentSubmission(
        submission_id="0x" + f"{number:02x}" * 32,
        policy_version=0,
        counter=number,
        standing=standing,
        num_units=5,
        reason=None,
        hint=None,
        payment=Payment(state=state, held_wei=5, slashed_wei=5, deadline=9, deadline_in_seconds=9),
    )


@dataclass
class SetClock:
    """This machine's clock, so many seconds off: what goes by is the still clock's."""

    pace: StillClock
    off: float = 0.0

    def now(self) -> float:
        return self.pace.now() + self.off

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return self.pace.wait(stop, seconds)


@dataclass
class Watched:
    """A lookout with what it sees and whom it tells."""

    make: Callable[[], Lookout]
    clock: StillClock
    wall: SetClock
    status: NodeStatus
    answers: list[int] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    lookout: Lookout = None  # type: ignore[assignment]

    def sees(self, **changes: Any) -> list[str]:
        """Look once; what was posted."""
        self.status = self.status.model_copy(update={"time": self.clock.time, **changes})
        before = len(self.bodies)
        self.lookout.turn()
        return [f"{body['kind']} {body['event']}" for body in self.bodies[before:]]

    def restarts(self) -> None:
        self.lookout = self.make()

    def handle(self, request: httpx.Request) -> httpx.Response:
        assert str(request.url) == URL
        status = self.answers.pop(0) if self.answers else 204
        if status == 0:
            raise httpx.ConnectError(f"can't reach {URL}", request=request)
        self.keys.append(request.headers["Idempotency-Key"])
        if status < 300:
            self.bodies.append(json.loads(request.content))
        return httpx.Response(status)


@pytest.fixture
def watched(
    make_config: Callable[..., WorkerConfig], make_status: Callable[..., NodeStatus], tmp_path: Path
) -> Iterator[Watched]:
    (tmp_path / "data").mkdir()
    clock = StillClock()
    wall = SetClock(clock)
    config = make_config(alert_minutes=10, alert_disk_bytes=0)
    with httpx.Client(transport=httpx.MockTransport(lambda request: found.handle(request))) as http:
        found = Watched(
            lambda: Lookout(config, lambda: found.status, http, URL, wall, clock),
            clock,
            wall,
            make_status(recent=(row(1),), accepted_time=1),
        )
        found.restarts()
        yield found


def test_nothing_accepted_is_told_once_and_its_end_once(watched: Watched) -> None:
    assert watched.sees() == []
    watched.clock.time += 599
    assert watched.sees() == []
    watched.clock.time += 1
    assert watched.sees() == ["nothing_accepted opened"]
    watched.clock.time += 600
    assert watched.sees() == []
    assert watched.sees(accepted_time=2) == ["nothing_accepted closed"]
    opened, closed = watched.bodies
    assert opened["incident_id"] == closed["incident_id"] and closed["time"] > opened["time"]
    assert "10 minutes" in opened["summary"] and opened["node"] == watched.status.node


def test_accepted_work_of_before_doesnt_put_it_off(watched: Watched) -> None:
    watched.sees()
    watched.clock.time += 600
    assert watched.sees(recent=(row(1), row(3, standing="rejected"))) == ["nothing_accepted opened"]


def test_stake_and_disk_are_told(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched.sees(allotment_wei=0) == ["stake_low opened"]
    assert watched.sees(allotment_wei=1) == ["stake_low closed"]
    watched.lookout._limits = watched.lookout._limits.model_copy(update={"disk_bytes": 1 << 60})
    assert watched.sees() == ["disk_short opened"]
    assert watched.bodies[-1]["todo"].startswith("make room")


def test_an_accusation_opens_and_a_slash_is_told_once(watched: Watched) -> None:
    accused = row(2, "rejected", PaymentState.ACCUSED)
    assert watched.sees(recent=(row(1), accused)) == ["accused opened"]
    assert "provider appeal" in watched.bodies[-1]["todo"]
    slashed = row(2, "rejected", PaymentState.SLASHED)
    assert sorted(watched.sees(recent=(row(1), slashed))) == ["accused closed", "slashed opened"]
    assert watched.sees() == []
    watched.restarts()
    assert watched.sees() == [], "a restart tells nothing again"
    assert watched.sees(recent=()) == [], "a slash is never over"


def test_other_rules_and_another_version_are_told(watched: Watched) -> None:
    watched.sees(rules_hash="0x" + "aa" * 32)
    assert watched.sees(rules_hash="0x" + "bb" * 32) == ["rules_changed opened"]
    assert watched.bodies[-1]["subject"] == "0x" + "bb" * 32
    assert watched.sees() == []
    assert watched.sees(rules_hash=None, unanswered=(f"{UNUSABLE}: GET /v1/pool",)) == ["version_required opened"]


def test_what_nobody_answers_is_no_end(watched: Watched) -> None:
    assert watched.sees(allotment_wei=0) == ["stake_low opened"]
    watched.clock.time += 300
    silent = watched.status.as_of.model_copy(update={"chain": watched.clock.time - 300})
    assert watched.sees(allotment_wei=None, as_of=silent) == []
    answered = watched.status.as_of.model_copy(update={"chain": watched.clock.time})
    assert watched.sees(allotment_wei=1, as_of=answered) == ["stake_low closed"]


def test_what_isnt_taken_is_sent_again_later_each_time_and_after_a_restart(watched: Watched) -> None:
    watched.answers = [500, 0, 500]
    assert watched.sees(allotment_wei=0) == []
    assert watched.sees() == [] and len(watched.answers) == 2, "not at once"
    watched.clock.time += 60
    assert watched.sees() == [] and len(watched.answers) == 1
    watched.clock.time += 60
    assert watched.sees() == [] and len(watched.answers) == 1, "twice as long"
    watched.restarts()
    assert watched.sees() == [] and watched.answers == []
    watched.clock.time += 60
    assert watched.sees() == ["stake_low opened"]
    assert len(set(watched.keys)) == 1, "who gets it twice can tell"


def test_the_webhook_is_a_secret(watched: Watched, tmp_path: Path) -> None:
    watched.answers = [0, 403]
    with capture_logs() as lines:
        watched.sees(allotment_wei=0)
        watched.clock.time += 60
        watched.sees()
    assert [line["why"] for line in lines if line["event"] == "alert.unsent"] == ["ConnectError", "HTTP 403"]
    kept = "".join(path.read_text() for path in (tmp_path / "data").rglob("*.json"))
    assert "T0K3N" not in str(lines) + kept and "stake_low" in kept


def test_where_the_webhook_comes_from(make_config: Callable[..., WorkerConfig], tmp_path: Path) -> None:
    file = tmp_path / "webhook"
    file.touch(mode=0o600)
    file.write_text(f"{URL}\n")
    assert webhook_of(make_config(alert_webhook_file=file), {}) == URL
    assert webhook_of(make_config(), {WEBHOOK_VARIABLE: URL}) == URL
    assert webhook_of(make_config(), {}) is None
    file.write_bytes(b"https://hooks.example/\xff\n")
    with pytest.raises(ConfigError, match="isn't text"):
        webhook_of(make_config(alert_webhook_file=file), {})
    file.write_text("hooks.example\n")
    with pytest.raises(ConfigError, match="no webhook"):
        webhook_of(make_config(alert_webhook_file=file), {})
    file.chmod(0o644)
    with pytest.raises(KeyFailure):
        webhook_of(make_config(alert_webhook_file=file), {})


def test_no_failure_of_a_look_ends_the_lookout(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def fails() -> NodeStatus:
        looks.append(1)
        raise ConfigError("the coordinator serves another pool")

    monkeypatch.setattr(watched.lookout, "_look", fails)
    monkeypatch.setattr(watched.lookout, "_clock", StillClock(num_waits=3))
    with capture_logs() as lines:
        watched.lookout._run()
    assert len(looks) == 3 and [line["event"] for line in lines] == ["lookout.failed"] * 3


@pytest.mark.parametrize(("status", "is_taken"), [(200, True), (302, False)])
def test_an_answer_without_end_or_to_elsewhere_holds_nothing_up(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, status: int, is_taken: bool
) -> None:
    def endless() -> Iterator[bytes]:
        raise AssertionError("the body is read")
        yield b""

    requests = []

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(status, content=endless(), headers={"location": "file:///etc/passwd"})

    monkeypatch.setattr(watched, "handle", handle)
    watched.sees(allotment_wei=0)
    assert len(requests) == 1
    assert (watched.lookout._memory.unsent == ()) is is_taken


def test_a_bug_in_a_look_ends_the_lookout_and_is_told(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.sees()
    assert watched.lookout.status is not None

    def fails() -> NodeStatus:
        raise RuntimeError("a bug")

    monkeypatch.setattr(watched.lookout, "_look", fails)
    with capture_logs() as lines, pytest.raises(RuntimeError):
        watched.lookout._run()
    assert [(line["event"], line["why"]) for line in lines] == [("lookout.ended", "RuntimeError: a bug")]
    assert watched.lookout.status is None


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
def test_who_sets_the_clock_neither_silences_an_alert_nor_raises_one(watched: Watched, off: float) -> None:
    watched.answers = [500]
    assert watched.sees(allotment_wei=0) == []
    watched.wall.off = off
    assert watched.sees() == [], "it is postponed still"
    watched.clock.time += 60
    assert watched.sees() == ["stake_low opened"]
    watched.clock.time += 539
    assert watched.sees() == []
    watched.clock.time += 1
    assert watched.sees() == ["nothing_accepted opened"], "ten minutes went by, whatever the clock says"
    assert watched.bodies[-1]["time"] == watched.wall.now()
