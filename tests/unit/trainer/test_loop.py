"""The loop against a coordinator and a chain that count, with a kill between any two of its steps."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from protocol.api import BatchOffer, BatchRefusal, Freshness, Problem, Status
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.engines.base import Engine
from protocol.errors import ChainError, ProofpoolError, Rejected, VerificationFailed
from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.rules import Rules
from protocol.shardcast.origin import own_manifest, published_manifest
from protocol.shardcast.patches import apply_patches
from protocol.signing import Signer, SigningDomain
from protocol.waiting import Waiting
from protocol.wire import ZERO_HASH, Signed, WeightsRelease
from tests.unit.trainer.conftest import COORDINATOR
from tests.unit.trainer.set_clock import SetClock
from trainer.batches import Batches
from trainer.broadcast import Broadcaster
from trainer.checkpoint import Checkpoint, CheckpointStore, Start
from trainer.config import PublishingConfig
from trainer.crew import Crew
from trainer.evaluation import PassRates
from trainer.figures import StepFigures
from trainer.held_back import EvaluationConfig, Evaluations
from trainer.learner import Learner, RecipeConfig
from trainer.loop import Trainer
from trainer.metrics_file import MetricsFile
from trainer.reporting import Reporting
from trainer.samples import TrainingBatch
from trainer.stopwatch import Phase, Stopwatch
from trainer.trained_groups import TrainedGroups

Offer = tuple[BatchOffer, bytes]
TERMS = SimpleNamespace(pool_id=1, coordinator=COORDINATOR.address, max_async=8)


class Killed(BaseException):
    """What a process sees of kill -9: nothing after it runs."""


class World:
    """A coordinator and a chain in memory, which outlive the trainer; `kill_at` ends it at one of its calls."""

    def __init__(self, make_offer: Callable[..., Offer], rules: Rules) -> None:
        self.make_offer = make_offer
        self.rules = rules
        self.calls: list[str] = []
        self.kill_at: int | None = None
        self.manifests: dict[int, str] = {}
        self.announced: dict[int, str] = {}
        self.leased: list[int] = []
        self.consumed: list[int] = []
        self.refused: list[BatchRefusal] = []
        self.num_by_use: dict[str, int] = {}

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.kill_at is not None and len(self.calls) > self.kill_at:
            self.kill_at = None
            raise Killed

    def manifest_hash(self, policy_version: int) -> str | None:
        self._called("chain.read")
        return self.manifests.get(policy_version)

    def publish_weights(self, policy_version: int, manifest_hash: str) -> None:
        self._called("chain.publish")
        assert policy_version not in self.manifests, "published twice"
        self.manifests[policy_version] = manifest_hash

    def status(self) -> Status:
        freshness = Freshness(head_block=1, indexed_block=1, chain_time=1, lag_seconds=0)
        return Status(
            freshness=freshness,
            epoch=0,
            committed_epochs=0,
            log_size=0,
            log_root=ZERO_HASH,
            policy_version=0,
            num_by_standing={},
            num_by_use=self.num_by_use,
            num_by_reaudit={},
            disputed_stamps={},
            num_pending_groups=0,
            earned_wei=0,
            claimed_wei=0,
            outbox={},
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self._called(f"{request.method} {path}")
        if path == "/v1/batches":
            step = int(request.url.params["step"])
            self.leased.append(step)
            return httpx.Response(200, content=self.make_offer(step)[0].model_dump_json())
        if path.endswith("/file"):
            return httpx.Response(200, content=self.make_offer(int(path.split("/")[3]))[1])
        if path.startswith("/v1/rules/"):
            return httpx.Response(200, content=self.rules.model_dump_json())
        if path.endswith("/refusal"):
            self.refused.append(BatchRefusal.model_validate_json(request.content))
        if path.endswith("/acknowledgement"):
            self.consumed.append(int(path.split("/")[3]))
        if path == "/v1/status":
            return httpx.Response(200, content=self.status().model_dump_json())
        if path == "/v1/weights":
            release = Signed[WeightsRelease].model_validate_json(request.content).message
            assert self.manifests[release.policy_version] == release.manifest_hash, "announced before it is on chain"
            self.announced[release.policy_version] = release.manifest_hash
        return httpx.Response(204)


def no_engine() -> Engine:
    raise AssertionError("nothing is evaluated")


@pytest.fixture
def world(make_offer: Callable[..., Offer], rules: Rules) -> World:
    return World(make_offer, rules)


@pytest.fixture
def start(
    world: World, make_model: Callable[[], CausalLM], domain: SigningDomain, tmp_path: Path
) -> Callable[..., Trainer]:
    """A new trainer process over the same folders."""

    def make(
        stop: threading.Event | None = None,
        evaluation: EvaluationConfig = EvaluationConfig(),  # noqa: B008
        make_engine: Callable[[], Engine] = no_engine,
        publishing: PublishingConfig = PublishingConfig(),  # noqa: B008
        learning_rate: float = 1e-2,
        at: Start = "newest",
    ) -> Trainer:
        stop = stop or threading.Event()
        recipe = RecipeConfig(learning_rate=learning_rate, optimizer_steps=1, warmup_steps=0)
        coordinator = CoordinatorClient("http://coordinator", transport=httpx.MockTransport(world.answer))
        reporting = Reporting(MetricsFile(tmp_path / "metrics.jsonl"), SystemClock(), Stopwatch(SystemClock()))
        waiting = Waiting(SystemClock(), stop, poll_seconds=0.001)
        return Trainer(
            Crew(Learner(make_model(), recipe), CheckpointStore(tmp_path / "checkpoints"), tmp_path),
            Broadcaster(tmp_path / "origin", 1, world, coordinator, Signer(b"\1" * 32), domain, publishing),
            Batches(coordinator, lambda: TERMS, domain),
            reporting,
            Evaluations(evaluation, make_engine, lambda: world.rules, tmp_path / "evaluations", reporting, waiting),
            waiting,
            at,
        )

    return make


def test_a_run_publishes_each_version_once_and_consumes_each_batch(
    world: World, start: Callable[..., Trainer], tmp_path: Path
) -> None:
    start().run(num_steps=3)
    assert sorted(world.manifests) == [0, 1, 2, 3]
    assert world.announced == world.manifests
    assert len(set(world.manifests.values())) == 4
    assert world.consumed == [1, 2, 3]
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == [1, 2, 3]


def test_versions_go_out_as_patches_with_a_snapshot_every_few(
    world: World, start: Callable[..., Trainer], tmp_path: Path
) -> None:
    start(publishing=PublishingConfig(snapshot_every=3)).run(num_steps=4)
    manifests = [own_manifest(tmp_path / "origin", version) for version in range(5)]
    assert [manifest.snapshot_version for manifest in manifests] == [None, 0, 0, None, 3]
    assert [manifest.patch is not None for manifest in manifests] == [False, True, True, True, True]
    assert {manifest.policy_version: manifest.manifest_hash for manifest in manifests} == world.manifests
    folder = tmp_path / "checkpoints" / "4" / "model"
    assert published_manifest(folder, 1, 4) == manifests[4], "the checkpoint says which version it is"
    apply_patches(
        tmp_path / "checkpoints" / "3" / "model" / "model.safetensors",
        [whole_patch(tmp_path / "origin", 4, tmp_path / "patch")],
        tmp_path / "result",
    )
    assert (tmp_path / "result").read_bytes() == (folder / "model.safetensors").read_bytes()


def whole_patch(origin: Path, policy_version: int, out: Path) -> Path:
    shards = sorted((origin / "versions" / str(policy_version) / "patch").iterdir(), key=lambda path: int(path.name))
    out.write_bytes(b"".join(path.read_bytes() for path in shards))
    return out


def test_a_restart_without_the_checkpoint_before_publishes_in_full(
    world: World, start: Callable[..., Trainer], tmp_path: Path
) -> None:
    publishing = PublishingConfig(snapshot_every=64)
    start(publishing=publishing).run(num_steps=2)
    shutil.rmtree(tmp_path / "checkpoints" / "1")
    shutil.rmtree(tmp_path / "origin" / "versions" / "2")
    world.manifests.pop(2)
    start(publishing=publishing).run(num_steps=3)
    manifests = [own_manifest(tmp_path / "origin", version) for version in (2, 3)]
    assert [(manifest.patch is None, manifest.snapshot_version) for manifest in manifests] == [(True, None), (False, 2)]


def test_the_origins_folder_keeps_the_newest_what_they_need_and_what_is_young(
    world: World, start: Callable[..., Trainer], tmp_path: Path
) -> None:
    start(publishing=PublishingConfig(keep_versions=2, keep_seconds=0)).run(num_steps=3)
    assert sorted(path.name for path in (tmp_path / "origin" / "versions").iterdir()) == ["2", "3"]
    start(publishing=PublishingConfig(keep_versions=1, keep_seconds=3600)).run(num_steps=4)
    assert sorted(path.name for path in (tmp_path / "origin" / "versions").iterdir()) == ["2", "3", "4"]


def test_a_version_goes_out_while_the_next_step_is_taken_and_that_isnt_saved_before(
    world: World, start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, publish, learn = start(), world.publish_weights, Learner.learn
    learnt, saved_too_early = threading.Event(), []

    def slow(policy_version: int, manifest_hash: str) -> None:
        """Version 1 is published no sooner than step 2 is learnt."""
        if policy_version == 1:
            assert learnt.wait(60), "step 2 waits for version 1"
            saved_too_early.append((tmp_path / "checkpoints" / "2").exists())
        publish(policy_version, manifest_hash)

    def learning(learner: Learner, batch: TrainingBatch, policy_version: int) -> StepFigures:
        figures = learn(learner, batch, policy_version)
        if policy_version == 1:
            learnt.set()
        return figures

    monkeypatch.setattr(world, "publish_weights", slow)
    monkeypatch.setattr(Learner, "learn", learning)
    trainer.run(num_steps=3)
    assert saved_too_early == [False]
    assert list(world.manifests) == [0, 1, 2, 3] and world.announced == world.manifests
    assert world.consumed == [1, 2, 3]


def test_what_goes_wrong_while_publishing_ends_the_run_before_the_next_save(
    world: World, start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = world.publish_weights

    def fails(policy_version: int, manifest_hash: str) -> None:
        if policy_version == 1:
            raise OSError(28, "No space left on device")
        publish(policy_version, manifest_hash)

    with monkeypatch.context() as patch:
        patch.setattr(world, "publish_weights", fails)
        with pytest.raises(OSError, match="No space"):
            start().run(num_steps=3)
    assert not (tmp_path / "checkpoints" / "2").exists()
    start().run(num_steps=3)
    assert list(world.manifests) == [0, 1, 2, 3]


def test_an_error_of_the_loop_doesnt_wait_for_an_outage(
    world: World, start: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(policy_version: int) -> str | None:
        raise ChainError("the node is away")

    monkeypatch.setattr(world, "manifest_hash", away)
    world.make_offer = lambda step: (_ for _ in ()).throw(ProofpoolError("the loop's own"))
    with pytest.raises(ProofpoolError, match="own"):
        start().run(num_steps=1)
    assert world.manifests == {}


def test_kills_at_many_calls_lose_and_double_nothing(world: World, start: Callable[..., Trainer]) -> None:
    for calls_to_live in (0, 1, 2, 3, 4, 5, 6, 3, 2, 5, 1, 4):
        world.kill_at = len(world.calls) + calls_to_live
        try:
            start().run(num_steps=3)
        except Killed:
            continue
    world.kill_at = None
    start().run(num_steps=3)
    assert sorted(world.manifests) == [0, 1, 2, 3]
    assert set(world.consumed) == {1, 2, 3}


def test_going_on_with_another_recipe_is_told(start: Callable[..., Trainer]) -> None:
    start().run(num_steps=1)
    for learning_rate, told in ((1e-2, []), (5e-3, [{"learning_rate": "0.01 -> 0.005"}])):
        with capture_logs() as logs:
            start(learning_rate=learning_rate).run(num_steps=1)
        assert [entry["changes"] for entry in logs if entry["event"] == "recipe.changed"] == told


def test_the_weights_after_a_kill_are_those_of_an_undisturbed_run(
    world: World, start: Callable[..., Trainer], make_offer: Callable[..., Offer], tmp_path: Path
) -> None:
    world.kill_at = 9
    with pytest.raises(Killed):
        start().run(num_steps=3)
    start().run(num_steps=3)
    killed = dict(world.manifests)
    for folder in ("checkpoints", "origin"):
        (tmp_path / folder).rename(tmp_path / f"killed-{folder}")
    world.manifests.clear()
    start().run(num_steps=3)
    assert world.manifests == killed


def test_a_version_that_is_on_chain_with_other_content_stops_the_trainer(
    world: World, start: Callable[..., Trainer]
) -> None:
    world.manifests[0] = "0x" + "99" * 32
    with pytest.raises(ProofpoolError, match="another manifest"):
        start().run(num_steps=1)


def test_versions_that_a_reorg_drops_are_published_again_in_order(world: World, start: Callable[..., Trainer]) -> None:
    """While the trainer waits for a batch, and while it learns or is away: an earlier version then is missing too."""
    start().run(num_steps=1)
    kept = dict(world.manifests)
    answer = world.answer
    dropped: list[tuple[int, str]] = []

    def dropping(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/batches" and not dropped:
            dropped.append(world.manifests.popitem())
            return httpx.Response(204)
        return answer(request)

    world.answer = dropping  # type: ignore[method-assign]
    start().run(num_steps=2)
    assert [version for version, _ in dropped] == [1] and dict(dropped).items() <= kept.items()
    assert list(world.manifests) == [0, 1, 2] and kept.items() <= world.manifests.items()
    kept = dict(world.manifests)
    for version in (1, 2):
        del world.manifests[version]
    start().run(num_steps=3)
    assert list(world.manifests) == [0, 1, 2, 3] and kept.items() <= world.manifests.items()


def test_what_the_origin_has_lost_cant_be_published_again(
    world: World, start: Callable[..., Trainer], tmp_path: Path
) -> None:
    start().run(num_steps=1)
    world.manifests.clear()
    (tmp_path / "origin" / "versions" / "0" / "manifest.json").unlink()
    with pytest.raises(ProofpoolError, match="hasn't got policy version 0"):
        start().run(num_steps=2)
    assert world.manifests == {}


def test_an_outage_of_the_coordinator_is_waited_out(
    world: World, start: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([True, True, True])
    answer = world.answer

    def sometimes(request: httpx.Request) -> httpx.Response:
        if next(failures, False):
            raise httpx.ConnectError("refused")
        return answer(request)

    monkeypatch.setattr(world, "answer", sometimes)
    start().run(num_steps=1)
    assert world.consumed == [1]


def test_a_stop_while_waiting_ends_the_loop(
    world: World, start: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()

    def nothing_yet(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/batches":
            stop.set()
        return httpx.Response(204)

    monkeypatch.setattr(world, "answer", nothing_yet)
    start(stop).run(num_steps=5)
    assert world.consumed == []
    assert sorted(world.manifests) == [0]


@pytest.mark.parametrize("change", [{"number": 9}, {"groups_root": "0x" + "77" * 32}, {"groups": ()}, {"step": 2}])
def test_a_batch_that_the_coordinator_did_not_sign_like_this_is_not_trained_on(
    world: World, start: Callable[..., Trainer], make_offer: Callable[..., Offer], change: dict[str, object]
) -> None:
    offer, file = make_offer(1)
    groups = offer.groups[:1] if "groups" in change else offer.groups
    false_offer = offer.model_copy(update=change | {"groups": groups})
    world.make_offer = lambda step: (false_offer, file)
    with pytest.raises(VerificationFailed):
        start().run(num_steps=1)
    assert world.consumed == []
    assert sorted(world.manifests) == [0]


@pytest.mark.parametrize(
    ("asked", "offered", "why"),
    [(2, 1, "step 1; asked for pool 1, step 2"), (2, 5, "step 5"), (2, 2, None)],
    ids=["that of a step before", "that of a later step", "the asked one"],
)
def test_only_the_batch_of_the_asked_step_is_trained_on(
    world: World,
    start: Callable[..., Trainer],
    make_offer: Callable[..., Offer],
    asked: int,
    offered: int,
    why: str | None,
) -> None:
    world.make_offer = lambda step: make_offer(offered if step == asked else step)
    if why is None:
        start().run(num_steps=2)
        assert sorted(world.manifests) == [0, 1, 2]
        return
    with pytest.raises(VerificationFailed, match="another batch than it was asked for") as refused:
        start().run(num_steps=2)
    assert why in refused.value.why
    assert sorted(world.manifests) == [0, 1] and world.consumed == [1]


def test_a_batch_of_another_pool_isnt_trained_on(
    world: World, start: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TERMS, "pool_id", 2)
    with pytest.raises(VerificationFailed, match="another batch than it was asked for"):
        start().run(num_steps=1)
    assert sorted(world.manifests) == [0] and world.consumed == []


def test_rollouts_that_the_pools_max_async_excludes_are_refused_with_their_submission(
    world: World, start: Callable[..., Trainer], make_offer: Callable[..., Offer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of version 0 they may be in step 1 alone; the next batch of step 2 is of version 1."""
    monkeypatch.setattr(TERMS, "max_async", 0)
    current: list[Offer] = []

    def next_offer(step: int) -> Offer:
        if step == 1:
            return make_offer(1)
        if len(current) <= len(world.refused):
            current.append(make_offer(2, version=len(current), number=2 + len(current)))
        return current[-1]

    world.make_offer = next_offer
    start().run(num_steps=2)
    assert [refusal.why for refusal in world.refused] == ["policy version 0, the pool's max_async allows 1 and later"]
    assert sorted(world.manifests) == [0, 1, 2]


@pytest.mark.parametrize("between", [0, 1])
def test_a_group_that_was_trained_on_is_refused_also_after_a_restart(
    world: World, start: Callable[..., Trainer], make_offer: Callable[..., Offer], between: int
) -> None:
    """What made version 1 comes again, in a batch of a later step that the coordinator has signed as well."""
    last = 2 + between
    current: list[Offer] = []

    def next_offer(step: int) -> Offer:
        if step < last:
            return make_offer(step)
        if len(current) <= len(world.refused):
            current.append(make_offer(last, number=(1, 9)[len(current)]))
        return current[-1]

    world.make_offer = next_offer
    start().run(num_steps=last - 1)
    assert not world.refused
    start().run(num_steps=last)
    submission_id = make_offer(1)[0].groups[0].submission_id
    assert [(one.submission_id, one.why) for one in world.refused] == [
        (submission_id, "its group 0 was trained on in step 1")
    ]
    assert set(world.consumed) == {*range(1, last), 9}


def test_steps_that_are_taken_again_have_the_groups_that_they_had(world: World, start: Callable[..., Trainer]) -> None:
    start().run(num_steps=3)
    manifests = dict(world.manifests)
    start(at=1).run(num_steps=3)
    assert world.leased == [1, 2, 3, 2, 3] and not world.refused
    assert world.manifests == manifests


def test_groups_are_kept_as_long_as_the_pools_max_async_lets_them_be_offered(
    start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts of version n come up to step n + 1 + max_async."""
    monkeypatch.setattr(TERMS, "max_async", 2)
    monkeypatch.setattr("trainer.samples._version_fault", lambda *args: None)
    start().run(num_steps=5)
    found = TrainedGroups.until(tmp_path / "checkpoints" / "5" / "batch")
    assert list(found.by_step) == [3, 4, 5]
    assert TrainedGroups.until(tmp_path / "checkpoints" / "0" / "batch").by_step == {}


def test_a_checkpoint_of_an_earlier_release_knows_its_own_groups_and_a_damaged_one_is_named(
    start: Callable[..., Trainer], tmp_path: Path
) -> None:
    start().run(num_steps=2)
    folder = tmp_path / "checkpoints" / "2" / "batch"
    (folder / "earlier.json").unlink()
    assert list(TrainedGroups.until(folder).by_step) == [2]
    (folder / "earlier.json").write_text("{")
    with pytest.raises(VerificationFailed, match="doesn't say which groups were trained on"):
        TrainedGroups.until(folder)


def test_a_refused_batch_that_is_offered_again_ends_the_run(
    world: World, start: Callable[..., Trainer], make_offer: Callable[..., Offer], make_rollout: Callable[..., Rollout]
) -> None:
    unfit = make_offer(1, replace(make_rollout(3), step=1))
    world.make_offer = lambda step: unfit
    with pytest.raises(VerificationFailed, match="offers a batch again that was refused"):
        start().run(num_steps=1)
    assert len(world.refused) == 1 and sorted(world.manifests) == [0]


def test_a_batch_with_an_unfit_row_is_refused_and_the_step_made_of_another(
    world: World, start: Callable[..., Trainer], make_offer: Callable[..., Offer], make_rollout: Callable[..., Rollout]
) -> None:
    unfit = replace(make_rollout(3), step=1)  # step 1 can't be made of version 1
    offers = iter([make_offer(1, unfit), make_offer(1, number=2)])
    current: list[Offer] = []

    def next_offer(step: int) -> Offer:
        """Another batch for the step once the first is refused."""
        if len(current) <= len(world.refused):
            current.append(next(offers))
        return current[-1]

    world.make_offer = next_offer
    start().run(num_steps=1)
    assert [(refusal.submission_id, refusal.why) for refusal in world.refused] == [
        (current[0][0].groups[0].submission_id, "policy version 1 in the batch of step 1")
    ]
    assert world.consumed == [2]
    assert sorted(world.manifests) == [0, 1]


def test_a_refusal_that_costs_nothing_is_waited_out_and_others_are_not(
    world: World, start: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, refusals = world.answer, iter(["rate_limited", "storage_full"])

    def refuse(code: str) -> httpx.Response:
        problem = Problem(type="about:blank", title="no", status=429, code=code)
        return httpx.Response(429, content=problem.model_dump_json())

    def busy(request: httpx.Request) -> httpx.Response:
        code = next(refusals, None) if request.url.path == "/v1/weights" else None
        return refuse(code) if code else answer(request)

    monkeypatch.setattr(world, "answer", busy)
    start().run(num_steps=1)
    assert world.consumed == [1]
    monkeypatch.setattr(world, "answer", lambda request: refuse("stale_policy"))
    with pytest.raises(Rejected):
        start().run(num_steps=2)


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_each_step_says_what_became_of_groups_since_the_one_before_over_a_restart_and_an_outage(
    world: World, start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.num_by_use = {"consumed": 2, "no_variance": 3}
    start().run(num_steps=1)
    world.num_by_use = {"consumed": 4, "no_variance": 5, "stale": 1}
    start().run(num_steps=2)

    def away() -> Status:
        raise httpx.ConnectError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(world, "status", away)
        start().run(num_steps=3)
    world.num_by_use = {"consumed": 8, "no_variance": 5, "stale": 4, "unfit": 2}
    start().run(num_steps=4)
    lines = metrics_of(tmp_path)
    columns = ("num_dropped_groups", "num_stale_groups", "num_unfit_groups")
    assert [[line.get(name) for name in columns] for line in lines] == [
        [3, 0, 0],
        [2, 1, 0],
        [None, None, None],  # the coordinator was away: nothing is counted, and nothing lost
        [0, 3, 2],
    ]
    assert lines[3]["num_groups_by_use"] == world.num_by_use


def test_each_step_names_its_bottleneck_and_where_its_seconds_went(
    world: World, start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time goes on where the test says: in learning of step 2, while version 2 goes out of step 3."""
    seconds = SetClock()
    trainer, learn, publish = start(), Learner.learn, world.publish_weights
    trainer.reporting.stopwatch.clock = seconds
    trainer.reporting.stopwatch.lap()
    learnt = threading.Event()

    def learning(learner: Learner, batch: TrainingBatch, policy_version: int) -> StepFigures:
        seconds.time += {1: 40.0}.get(policy_version, 1.0)
        if policy_version == 2:
            learnt.set()
        return learn(learner, batch, policy_version)

    def slow(policy_version: int, manifest_hash: str) -> None:
        if policy_version == 2:
            assert learnt.wait(60)
            wait_until(lambda: trainer.stopwatch.current()[0] is Phase.PUBLISHING)
            seconds.time += 50.0
        publish(policy_version, manifest_hash)

    monkeypatch.setattr(Learner, "learn", learning)
    monkeypatch.setattr(world, "publish_weights", slow)
    trainer.run(num_steps=3)
    lines = metrics_of(tmp_path)
    assert [line["bottleneck"] for line in lines[1:]] == ["training", "publishing"]
    assert [line["learn_seconds"] for line in lines] == [1.0, 40.0, 1.0]
    assert [line["waited_to_publish_seconds"] for line in lines] == [0.0, 0.0, 50.0]
    assert [line["step_seconds"] for line in lines] == [1.0, 40.0, 51.0]
    assert lines[1]["tokens_per_second"] == lines[1]["num_tokens"] / 40


def test_a_batch_of_nothing_but_the_newest_version_had_to_wait_until_that_was_out(
    world: World,
    start: Callable[..., Trainer],
    make_offer: Callable[..., Offer],
    make_rollout: Callable[..., Rollout],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Synchronous: max_async 0. The coordinator has no batch before the version is announced."""
    seconds, answer = SetClock(), world.answer
    asked = threading.Event()

    def offer_of_newest(step: int) -> Offer:
        return make_offer(step, version=step - 1)

    def synchronous(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/batches":
            asked.set()
            is_going_out = any(thread.name == "publishing" for thread in threading.enumerate())
            if is_going_out or int(request.url.params["step"]) - 1 not in world.announced:
                return httpx.Response(204)
            seconds.time += 2.0  # workers and verifiers
        if request.url.path == "/v1/weights" and len(world.announced) < 2:
            assert asked.wait(60)
            asked.clear()
            seconds.time += 30.0
        return answer(request)

    world.make_offer = offer_of_newest
    monkeypatch.setattr(world, "answer", synchronous)
    trainer = start()
    trainer.reporting.stopwatch.clock = seconds
    trainer.reporting.stopwatch.lap()
    trainer.run(num_steps=2)
    for line in metrics_of(tmp_path):
        assert line["max_policy_lag"] == 0 and line["policy_lag_counts"] == {"0": 8}
        assert (line["waited_seconds"], line["unpublished_seconds"]) == (32.0, 30.0)
        assert line["bottleneck"] == "publishing"


def wait_until(holds: Callable[[], bool]) -> None:
    """Until a condition of another thread holds; the test's own time limit ends it otherwise."""
    pause = threading.Event()
    while not holds():
        pause.wait(0.001)


def test_versions_are_evaluated_in_turn_and_after_a_restart_only_those_that_arent_yet(
    world: World, start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second one and each run's last; learning and saving go on without a completion in between."""
    evaluated, was_held = [], []

    def evaluate(evaluations: Evaluations, checkpoint: Checkpoint) -> None:
        evaluated.append(checkpoint.policy_version)
        evaluations.reporting.evaluated(checkpoint.policy_version, PassRates(256, 1, 0.5, 0.5), 1.0)

    def learning(learner: Learner, batch: TrainingBatch, policy_version: int) -> StepFigures:
        was_held.append(not trainer.evaluations._may_go.is_set())
        return learn(learner, batch, policy_version)

    learn = Learner.learn
    monkeypatch.setattr(Learner, "learn", learning)
    monkeypatch.setattr(Evaluations, "_evaluate", evaluate)
    trainer = start(evaluation=EvaluationConfig(evaluate_every=2))
    trainer.run(num_steps=3)
    assert evaluated == [0, 2, 3]
    trainer = start(evaluation=EvaluationConfig(evaluate_every=2))
    trainer.run(num_steps=5)
    assert evaluated == [0, 2, 3, 4, 5]
    assert was_held == [True] * 5
    lines = metrics_of(tmp_path)
    assert sorted(line["step"] for line in lines if "held_back_average" in line) == evaluated
    assert [line["step"] for line in lines if "objective" in line] == [1, 2, 3, 4, 5]


def test_a_failing_evaluation_ends_the_run_with_its_error_and_a_usable_checkpoint(
    world: World, start: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(evaluations: Evaluations, checkpoint: Checkpoint) -> None:
        if checkpoint.policy_version == 2:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Evaluations, "_evaluate", fails)
        with pytest.raises(OSError, match="No space"):
            start(evaluation=EvaluationConfig(evaluate_every=2)).run(num_steps=5)
    start().run(num_steps=3)
    assert list(world.manifests) == [0, 1, 2, 3]
