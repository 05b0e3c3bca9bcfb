"""What a bench measures and promises: tokens of the pool's own tasks, and credits under stated assumptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.amount import format_amount
from protocol.client import CoordinatorClient
from protocol.engines.torch import TorchEngine
from protocol.errors import Rejected, UsageError
from protocol.progress import Unseen
from protocol.reasons import RejectReason
from protocol.rules import Rules
from tests.documents import fitting
from tests.unit.worker.conftest import StillClock
from worker import bench as module
from worker.activity import Activity
from worker.bench import BenchReport, Given, bench, bench_lines
from worker.config import WorkerConfig
from worker.status import NodeStatus


class Ticks:
    """A clock on which each question takes a hundredth of a second."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        self.time += 0.01
        return self.time

    def wait(self, stop: Any, seconds: float) -> bool:
        return False


@pytest.fixture
def measured(
    pool: Any, make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., BenchReport]:
    transport = httpx.MockTransport(pool.handle)
    monkeypatch.setattr(module, "CoordinatorClient", lambda url: CoordinatorClient(url, transport=transport))

    def measure(given: Given | None = None, seconds: float = 1.0) -> BenchReport:
        return bench(make_config(max_batch=8), TorchEngine(8), Ticks(), seconds, Unseen(), given or Given())

    return measure


pytestmark = pytest.mark.usefixtures("asked")


def test_tokens_of_the_pools_tasks_at_the_pools_price(measured: Callable[..., BenchReport], rules: Rules) -> None:
    found = measured()
    assert (found.policy_version, found.rules_hash, found.price_wei) == (0, rules.rules_hash, 1)
    assert found.num_rollouts == found.num_tasks * rules.groups_per_task * rules.group_size, "each task to its end"
    assert found.tokens_per_second == pytest.approx(found.num_tokens / found.seconds, abs=0.01)
    assert 0 < found.proof_seconds < found.seconds
    assert found.credits_per_day_wei == pytest.approx(found.num_tokens / found.seconds * 86400, abs=2)
    assert fitting("worker bench", found.model_dump_json())["accepted_share"] is None


def test_it_is_measured_for_as_long_as_was_asked(measured: Callable[..., BenchReport]) -> None:
    short, long = measured(seconds=0.2), measured(seconds=2.0)
    assert short.num_tasks < long.num_tasks and long.seconds >= 2.0


def test_what_was_refused_of_late_isnt_promised(
    measured: Callable[..., BenchReport], make_status: Callable[..., NodeStatus], tmp_path: Path
) -> None:
    whole = measured()
    file = tmp_path / "data" / "process" / "last_known.json"
    file.parent.mkdir(parents=True)
    file.write_text(make_status(num_judged=4, num_accepted=1).model_dump_json())
    found = measured()
    assert found.accepted_share == 0.25 and whole.credits_per_day_wei and found.credits_per_day_wei
    assert found.credits_per_day_wei / found.tokens_per_second == pytest.approx(
        whole.credits_per_day_wei / whole.tokens_per_second / 4, rel=1e-3
    )
    said = "\n".join(bench_lines(found))
    assert "25% accepted" in said and "at most" in said and said.count("\n  - ") == len(found.assumptions)


@pytest.mark.parametrize(
    ("seconds", "waited", "share", "is_told"),
    [(400, 100.0, 0.25, True), (400, 4.0, 0.01, False), (59, 59.0, None, False)],
)
def test_a_pool_that_wants_less_than_the_machine_makes_is_named_as_the_limit(
    measured: Callable[..., BenchReport],
    tmp_path: Path,
    seconds: int,
    waited: float,
    share: float | None,
    is_told: bool,
) -> None:
    clock = StillClock()
    activity = Activity(clock, "0.1.0")
    clock.time += seconds
    activity.observe("waited", {"obstacle": str(Rejected(RejectReason.NO_DEMAND).what), "seconds": waited})
    activity.observe("waited", {"obstacle": "the coordinator doesn't answer", "seconds": seconds / 2})
    file = tmp_path / "data" / "process" / "state.json"
    file.parent.mkdir(parents=True)
    file.write_text(activity.state().model_dump_json())
    found = measured()
    assert fitting("worker bench", found.model_dump_json())["no_demand_share"] == share
    last = list(bench_lines(found))[-1]
    assert ("the pool's demand is the limit, not this machine" in last) is is_told
    if is_told:
        assert found.credits_per_day_wei is not None
        assert f"about {format_amount(int(found.credits_per_day_wei * 0.75))} credits a day" in last


def test_where_no_worker_ran_nothing_is_said_of_demand(measured: Callable[..., BenchReport]) -> None:
    found = measured()
    assert found.no_demand_share is None and "demand" not in "\n".join(bench_lines(found))


def test_a_model_and_rules_by_hand_need_no_pool(
    measured: Callable[..., BenchReport], pool: Any, rules: Rules, model_folder: Path, tmp_path: Path
) -> None:
    pool.outage = True
    file = tmp_path / "rules.json"
    file.write_text(rules.model_dump_json())
    found = measured(Given(rules=file, model=model_folder))
    assert (found.model, found.price_wei, found.credits_per_day_wei) == (str(model_folder), None, None)
    assert list(bench_lines(found))[-1].startswith("no pool was asked")


def test_a_pool_without_weights_measures_nothing(measured: Callable[..., BenchReport], pool: Any) -> None:
    pool.releases.clear()
    with pytest.raises(UsageError, match="no weights yet"):
        measured()
