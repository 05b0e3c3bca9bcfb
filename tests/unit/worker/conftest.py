"""A pool in one process: coordinator, chain and origin as small fakes around real files, rules and signatures."""

from __future__ import annotations

import base64
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from protocol import api
from protocol.canonical import hex0x, sha256
from protocol.chain.pool import PoolRecord, VersionRecord
from protocol.client import ENVELOPE_HEADER, CoordinatorClient
from protocol.engines.base import LiveEngine
from protocol.engines.torch import TorchEngine
from protocol.environments.registry import load_environment
from protocol.fate import Fate
from protocol.reasons import RejectReason
from protocol.rollouts import Rollout, content_hash, read_rollouts
from protocol.rules import Rules
from protocol.shardcast.origin import Base, own_manifest, publish
from protocol.signing import Signer, SigningDomain
from protocol.tokenizer import Tokenizer
from protocol.trace import Trace, TraceStage
from protocol.wire import Receipt, Renewal, Signed, Task, WeightsRelease
from worker.bounds import Bounds
from worker.config import WorkerConfig
from worker.folder import WorkerFolder
from worker.loop import Worker
from worker.membership import Membership
from worker.patience import Patience
from worker.status import NodeStatus
from worker.weights import Weights

POOL_ID = 1
PRICE_WEI = 10
TASK_CONFIG = {
    "dataset": "chain_sum",
    "parameters": {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2},
    "answer_marker": "#",
    "num_problems": 500,
}
TIGHT = {"reject": 0.05, "slash": 0.5}
"""Honest work of one machine deviates by less than a hundredth of this, any forgery by far more."""


class StillClock:
    """A clock that a test moves; waiting takes no time and stops a loop after `num_waits`."""

    def __init__(self, num_waits: int = 1_000_000) -> None:
        self.time = 1_000_000.0
        self.waits: list[float] = []
        self._num_waits = num_waits

    def now(self) -> float:
        return self.time

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.time += seconds
        if len(self.waits) >= self._num_waits:
            stop.set()
        return stop.is_set()


class AtOnce(Executor):
    """Errands are done when they are started: a test's turn has no threads."""

    def submit(self, run: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(run(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class FakeChain:
    """What the chain says; tests write into it."""

    coordinator: str
    trainer: str
    rules_hash: str
    seconds: int = 1_000_000
    epochs: int = 1
    versions: dict[int, VersionRecord] = field(default_factory=dict)

    def time(self) -> int:
        return self.seconds

    def record(self) -> PoolRecord:
        return PoolRecord(
            pool_id=POOL_ID,
            coordinator=self.coordinator,
            trainer=self.trainer,
            rules_hashes=frozenset({self.rules_hash}),
            prices_wei=frozenset({PRICE_WEI}),
            verify_prices_wei=frozenset({1}),
            accept_quorum=1,
            slash_quorum=2,
            draw_limit=5,
            reaudit_bps=0,
            accuse_seconds=60,
            lease_seconds=60,
            max_async=2,
        )

    def num_epochs(self) -> int:
        return self.epochs

    def version(self, policy_version: int) -> VersionRecord:
        return self.versions[policy_version]


@dataclass
class FakePool:
    """A coordinator that leases and takes in, and an origin under the same address.

    `settlings`, `earned` (by epoch, then account) and `slashes` are what it says of money, `fates`, `verdicts` of work.
    `outage` makes everything unreachable; `refusals` are given to the next requests of a path's first word;
    `loses_leases` makes leases whose answer never arrives; `receipt_signer` and `receipt_for` make receipts that bind
    nobody, or speak of something else.
    """

    domain: SigningDomain
    coordinator: Signer
    trainer: Signer
    node: Signer
    rules: Rules
    origin: Path
    chain: FakeChain
    releases: dict[int, Signed[WeightsRelease]] = field(default_factory=dict)
    tasks: list[Signed[Task]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    pieces: dict[str, bytes] = field(default_factory=dict)
    renewals: dict[str, Signed[Renewal]] = field(default_factory=dict)
    renewal_seconds: int = 60
    renewal_for: str = ""
    most_leases: int = 1_000
    cut_after: int = 0
    forgets_pieces: bool = False
    standings: dict[str, tuple[api.Standing, str | None]] = field(default_factory=dict)
    settlings: dict[str, api.SettlingView] = field(default_factory=dict)
    earned: dict[int, dict[str, int]] = field(default_factory=dict)
    slashes: dict[str, int] = field(default_factory=dict)
    fates: dict[str, Fate] = field(default_factory=dict)
    verdicts: dict[str, tuple[api.VerdictView, ...]] = field(default_factory=dict)
    received: dict[str, tuple[api.SubmissionEnvelope, list[Rollout]]] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    refusals: dict[str, list[RejectReason]] = field(default_factory=dict)
    price_wei: int = PRICE_WEI
    outage: bool = False
    loses_leases: bool = False
    receipt_signer: Signer | None = None
    receipt_for: str = ""
    include_by_epoch: int = 1

    def publish(self, folder: Path, policy_version: int, before: Path | None = None) -> None:
        """A new version: on the origin, on chain, announced; with a patch if the folder `before` it is given."""
        base = Base(before, own_manifest(self.origin, policy_version - 1)) if before is not None else None
        manifest = publish(folder, self.origin, POOL_ID, policy_version, shard_bytes=100_000, base=base)
        manifest_hash = manifest.manifest_hash
        release = WeightsRelease(pool_id=POOL_ID, policy_version=policy_version, manifest_hash=manifest_hash)
        self.releases[policy_version] = Signed[WeightsRelease].by(self.trainer, release, self.domain)
        self.chain.versions[policy_version] = VersionRecord(
            policy_version, manifest_hash, 7, hex0x(sha256(b"%d" % policy_version))
        )

    def handle(self, request: httpx.Request) -> httpx.Response:
        """One request, as the real coordinator answers it."""
        if self.outage:
            raise httpx.ConnectError("down", request=request)
        parts = request.url.path.strip("/").split("/")
        self.requests.append(f"{request.method} {request.url.path}")
        if parts[0] == "versions":
            path = self.origin.joinpath(*parts)
            return httpx.Response(200, content=path.read_bytes()) if path.exists() else httpx.Response(404)
        if waiting := self.refusals.get(parts[1]):
            return self._refused(waiting.pop(0))
        answer: httpx.Response = getattr(self, f"_{parts[1]}")(request, *parts[2:])
        return answer

    def _pool(self, request: httpx.Request) -> httpx.Response:
        info: dict[str, Any] = dict.fromkeys(
            ("chain_id", "max_async", "accept_quorum", "slash_quorum", "confirmations", "epoch"), 1
        )
        info |= dict.fromkeys(("price_wei", "verify_price_wei", "min_allotment_wei"), "1")
        info |= {"pool_id": POOL_ID, "rules_hash": self.rules.rules_hash, "paused": False}
        info |= {"model_hash": "0x" + "00" * 32, "deployment_salt": self.domain.salt, "chain_id": self.domain.chain_id}
        contracts = dict.fromkeys(("credits", "registry", "pools", "ledger", "court", "jury"), self.domain.contract)
        freshness = {"head_block": 1, "indexed_block": 1, "chain_time": self.chain.seconds, "lag_seconds": 0}
        pool = api.PoolInfo(
            coordinator=self.coordinator.address,
            trainer=self.trainer.address,
            contracts=api.ContractAddresses(**contracts),
            freshness=api.Freshness(**freshness),
            policy_version=max(self.releases, default=None),
            shardcast_urls=("http://pool",),
            **info,
        )
        return self._answer(pool)

    def _rules(self, request: httpx.Request, rules_hash: str) -> httpx.Response:
        return self._answer(self.rules)

    def _weights(self, request: httpx.Request, number: str) -> httpx.Response:
        release = self.releases[int(number)]
        return self._answer(api.WeightsView(release=release, beacon_block=1, beacon_hash=None, published_time=1))

    def _tasks(self, request: httpx.Request, *task_id: str) -> httpx.Response:
        if request.method == "DELETE":
            self.returned += task_id
            return httpx.Response(204)
        if task_id[1:] == ("renewal",):
            return self._renew(task_id[0], api.RenewalRequest.model_validate_json(request.content).deadline)
        if request.method == "GET" and task_id:
            return self._task(*task_id)
        if request.method == "GET":
            return httpx.Response(200, content=TypeAdapter(list[Signed[Task]]).dump_json(self.open_tasks()))
        if len(self.open_tasks()) >= self.most_leases:
            return self._refused(RejectReason.LEASE_LIMIT)
        policy_version = api.TaskRequest.model_validate_json(request.content).policy_version
        task = Task(
            pool_id=POOL_ID,
            policy_version=policy_version,
            node=self.node.address,
            counter=len(self.tasks),
            rules_hash=self.rules.rules_hash,
            beacon_block=7,
            beacon_hash=self.chain.versions[policy_version].beacon_hash or "",
            price_wei=self.price_wei,
            max_units=self.rules.max_units,
            deadline=self.chain.seconds + 60,
        )
        self.tasks.append(Signed[Task].by(self.coordinator, task, self.domain))
        if self.loses_leases:
            raise httpx.ReadError("killed", request=request)
        return self._answer(self.tasks[-1])

    def _renew(self, task_id: str, known_deadline: int) -> httpx.Response:
        """`renewal_seconds` more; the same again to who doesn't know of it."""
        task = next(task.message for task in self.tasks if task.message.id(self.domain) == task_id)
        known = self.renewals.get(task_id)
        if known is None or known.message.deadline == known_deadline:
            renewal = Renewal(task_id=self.renewal_for or task_id, deadline=known_deadline + self.renewal_seconds)
            known = Signed[Renewal].by(self.receipt_signer or self.coordinator, renewal, self.domain)
            assert known_deadline >= task.deadline
            self.renewals[task_id] = known
        return self._answer(known)

    def deadline(self, task: Task) -> int:
        renewal = self.renewals.get(task.id(self.domain))
        return task.deadline if renewal is None else renewal.message.deadline

    def _task(self, task_id: str) -> httpx.Response:
        """Any task, and what was handed in for it."""
        task = next((task for task in self.tasks if task.message.id(self.domain) == task_id), None)
        if task is None:
            return self._not_found()
        handed_in = {e.submission.message.counter: submission_id for submission_id, (e, _) in self.received.items()}
        submission_id = handed_in.get(task.message.counter)
        standing = api.Standing.RECEIVED if submission_id else api.Standing.LEASED
        renewal = self.renewals.get(task_id)
        view = api.TaskView(task=task, standing=standing, submission_id=submission_id, renewal=renewal)
        return self._answer(view)

    def open_tasks(self) -> list[Signed[Task]]:
        """Leases that are neither used nor returned nor over."""
        used = {envelope.submission.message.counter for envelope, _ in self.received.values()}
        return [
            task
            for task in self.tasks
            if task.message.counter not in used
            and task.message.id(self.domain) not in self.returned
            and self.deadline(task.message) > self.chain.seconds
        ]

    def _submissions(self, request: httpx.Request, submission_id: str, *rest: str) -> httpx.Response:
        if request.method == "GET":
            return self._submission(submission_id, *rest)
        envelope = api.SubmissionEnvelope.model_validate_json(
            base64.urlsafe_b64decode(request.headers[ENVELOPE_HEADER])
        )
        submission = envelope.submission.check(self.node.address, self.domain)
        if rest == ("pieces",):
            return self._piece(submission_id, int(request.url.params["offset"]), request.content)
        file = request.content or self.pieces.get(submission_id, b"")
        if submission.id(self.domain) != submission_id or hex0x(sha256(file)) != envelope.file_sha256:
            return self._refused(RejectReason.FILE_MISMATCH)
        header, rollouts = read_rollouts(file, max_rows=1000, max_tokens=1000)
        if content_hash(header, rollouts) != submission.content_hash:
            return self._refused(RejectReason.FILE_MISMATCH)
        self.received[submission_id] = envelope, rollouts
        self.files[submission_id] = file
        receipt = Receipt(
            submission_id=self.receipt_for or submission_id, received_block=1, include_by_epoch=self.include_by_epoch
        )
        return self._answer(Signed[Receipt].by(self.receipt_signer or self.coordinator, receipt, self.domain))

    def _piece(self, submission_id: str, offset: int, piece: bytes) -> httpx.Response:
        """Kept where it goes on; `cut_after` counts down to the piece whose answer never arrives."""
        here = self.pieces.get(submission_id, b"")
        if offset == len(here) and not self.forgets_pieces:
            here += piece
        self.pieces[submission_id] = here
        self.cut_after -= 1
        if self.cut_after == 0:
            raise httpx.ReadError("cut")
        return self._answer(api.UploadState(num_bytes=len(here)))

    def _submission(self, submission_id: str, *rest: str) -> httpx.Response:
        """What the coordinator says of a submission, or its file."""
        if submission_id not in self.received:
            return self._refused(RejectReason.LEASE_UNKNOWN)
        if rest == ("file",):
            return httpx.Response(200, content=self.files[submission_id])
        envelope, rollouts = self.received[submission_id]
        standing, reason = self.standings.get(submission_id, (api.Standing.RECEIVED, None))
        view = api.SubmissionView(
            submission_id=submission_id,
            provider=self.trainer.address,
            submission=envelope.submission,
            task=self.tasks[envelope.submission.message.counter],
            standing=standing,
            reason=reason,
            file_sha256=envelope.file_sha256,
            num_bytes=envelope.num_bytes,
            num_rollouts=len(rollouts),
            num_units=sum(rollout.num_units for rollout in rollouts),
            received_time=1,
            epoch=0,
            log_index=1,
            settling=self.settlings.get(submission_id),
            verdicts=self.verdicts.get(submission_id, ()),
        )
        return self._answer(view)

    def _earnings(self, request: httpx.Request, epoch: str) -> httpx.Response:
        """The statement behind an epoch's root."""
        accounts = tuple(api.ProviderEarnings(account=a, cumulative_wei=n) for a, n in self.earned[int(epoch)].items())
        root, total = "0x" + "00" * 32, sum(self.earned[int(epoch)].values())
        statement = api.EarningsStatement(
            pool_id=POOL_ID, epoch=int(epoch), root=root, total_wei=total, accounts=accounts
        )
        return self._answer(statement)

    def _log(self, request: httpx.Request, *path: str) -> httpx.Response:
        """One leaf, settled a second after its index."""
        index, zero = int(request.url.params["start"]), "0x" + "00" * 32
        entry = api.LogEntry(index=index, subject=zero, event_hash=zero, leaf_hash=zero, event={"time": index + 1})
        return httpx.Response(200, content=TypeAdapter(list[api.LogEntry]).dump_json([entry]))

    def _trace(self, request: httpx.Request, subject: str) -> httpx.Response:
        """What the log says of a submission or its task, where a test has said so; else of a slash."""
        told = self.fates.get(subject)
        if told is None and subject not in self.slashes:
            return self._not_found()
        if told is None:
            return self._slash(subject)
        taken_in = subject if subject in self.received else next(iter(self.received), None)
        freshness = api.Freshness(head_block=1, indexed_block=1, chain_time=1, lag_seconds=0)
        return self._answer(
            Trace(subject=subject, submission_id=taken_in, what_happened=told, stages=(), freshness=freshness)
        )

    def _slash(self, submission_id: str) -> httpx.Response:
        """As far as the Registry's slash goes."""
        values = {"amount": str(self.slashes[submission_id])}
        event = {"stage": "chain", "id": None, "status": "Slashed", "signer": None, "time": 1, "values": values}
        freshness = api.Freshness(head_block=1, indexed_block=1, chain_time=1, lag_seconds=0)
        stage = TraceStage.model_validate({**event, "log_indexes": ()})
        fate = Fate(status="slashed", reason=None, sentence="Slashed.")
        found = Trace(
            subject=submission_id,
            submission_id=submission_id,
            what_happened=fate,
            stages=(stage,),
            freshness=freshness,
        )
        return self._answer(found)

    def _answer(self, document: Any) -> httpx.Response:
        return httpx.Response(200, content=document.model_dump_json().encode())

    def _not_found(self) -> httpx.Response:
        problem = api.Problem(type="about:blank", title="not found", status=404, code="not_found")
        return httpx.Response(404, content=problem.model_dump_json().encode())

    def _refused(self, reason: RejectReason) -> httpx.Response:
        problem = api.Problem(type="about:blank", title="refused", status=409, code=reason.value)
        return httpx.Response(409, content=problem.model_dump_json().encode())

    def membership(self) -> Membership:
        client = CoordinatorClient("http://pool", transport=httpx.MockTransport(self.handle))
        return Membership(POOL_ID, self.node, self.domain, client, self.chain)


@pytest.fixture
def make_clock() -> Callable[[int], StillClock]:
    """A clock that stops the loop after so many waits."""
    return StillClock


@pytest.fixture(scope="session")
def model_folder(make_model_folder: Callable[[int], Path]) -> Path:
    return make_model_folder(0)


@pytest.fixture(scope="session")
def rules(model_folder: Path) -> Rules:
    """Four groups of two, with limits that honest work of one machine stays far below."""
    environment = load_environment("reasoning_gym", TASK_CONFIG, Tokenizer.load(model_folder))
    names = ("toploc_exp_mismatch_share", "toploc_mantissa_mean", "sampling_margin_mean", "sampling_margin_max")
    return Rules.model_validate(
        {
            "environment": {
                "name": "reasoning_gym",
                "config": TASK_CONFIG,
                "environment_hash": environment.environment_hash,
            },
            "sampling": {"max_new_tokens": 40},
            "thresholds": {**dict.fromkeys((*names, "logprob_error_mean"), TIGHT), "sampling_flips": {"rate": 0.001}},
            "group_size": 2,
            "groups_per_task": 4,
        }
    )


@pytest.fixture(autouse=True)
def impatient_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is on its way to the fake pool's relay: what isn't there isn't waited for."""
    monkeypatch.setattr("worker.weights.WAIT_SECONDS", 0.0)


@pytest.fixture
def pool(
    tmp_path: Path, rules: Rules, model_folder: Path, domain: SigningDomain, make_signer: Callable[[int], Signer]
) -> FakePool:
    """A pool with version 0 published."""
    coordinator, trainer, node = (make_signer(number) for number in (1, 2, 3))
    chain = FakeChain(coordinator.address, trainer.address, rules.rules_hash)
    found = FakePool(domain, coordinator, trainer, node, rules, tmp_path / "origin", chain)
    found.publish(model_folder, 0)
    return found


@pytest.fixture
def opened() -> Iterator[list[WorkerFolder]]:
    """Data folders that are held."""
    found: list[WorkerFolder] = []
    yield found
    close_all(found)


def close_all(opened: list[WorkerFolder]) -> None:
    while opened:
        opened.pop().close()


@pytest.fixture
def stop_all(opened: list[WorkerFolder]) -> Callable[[], None]:
    """Ends the workers that were made, as a kill does."""
    return lambda: close_all(opened)


@pytest.fixture
def make_worker(pool: FakePool, tmp_path: Path, opened: list[WorkerFolder]) -> Callable[..., Worker]:
    """A worker over the same data folder each time: making a second one is a restart after a kill."""

    def make(
        shape: type[Worker] = Worker,
        clock: StillClock | None = None,
        engine: LiveEngine | None = None,
        follow: bool = True,
        bounds: Bounds | None = None,
    ) -> Worker:
        close_all(opened)
        clock = clock or StillClock()
        membership = pool.membership()
        folder = WorkerFolder(
            tmp_path / "data", node=membership.node, pool_id=POOL_ID, domain=pool.domain, give_up_seconds=100
        )
        opened.append(folder)
        http = httpx.Client(transport=httpx.MockTransport(pool.handle))
        bounds = bounds or Bounds()
        weights = Weights(folder.weights, membership, http, num_kept=2, bounds=bounds)
        if follow:
            weights.follow()
        patience = Patience(clock, random.Random(0), 0.25, 30.0)
        return shape(membership, folder, weights, engine or TorchEngine(), clock, patience, bounds, AtOnce())

    return make


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., WorkerConfig]:
    def make(**changes: Any) -> WorkerConfig:
        settings = {
            "coordinator_url": "http://pool",
            "chain_url": "http://chain",
            "pool_id": 1,
            "keystore": tmp_path / "key.json",
            "data_dir": tmp_path / "data",
            "retry_first_seconds": 0.001,
            "retry_most_seconds": 0.01,
            "follow_seconds": 0.001,
        }
        return WorkerConfig.model_validate({**settings, **changes})

    return make


@pytest.fixture
def make_status() -> Callable[..., NodeStatus]:
    """A status in which all is well, with what a test changes of it."""

    def make(**changes: Any) -> NodeStatus:
        process = {"is_running": True, "pid": 1, "started_time": 1.0, "written_time": 1.0, "phase": "working"}
        unknown = ("earned_wei", "claimed_wei", "claimable_wei", "withheld_wei", "pending_wei", "unrooted_wei")
        values: dict[str, Any] = {
            "verdict": "EARNING",
            "why": "1 of the last 1 that were judged accepted",
            "todo": "",
            "time": 1_000_000.0,
            "version": "0.1.0",
            "node": "0x" + "11" * 20,
            "process": {**process, "waiting": (), "tokens_per_second": 1.0},
            "provider": "0x" + "22" * 20,
            "allotment_wei": 1,
            "min_allotment_wei": 1,
            **dict.fromkeys((*unknown, "next_payout", "last_submission", "rules_hash"), None),
            **dict.fromkeys(("pool_version", "lag", "num_leases", "num_pending", "num_judged", "num_accepted"), 0),
            "num_unjudged": 0,
            "accepted_time": None,
            "local_versions": (0,),
            "recent": (),
            "as_of": {"coordinator": 1_000_000.0, "chain": 1_000_000.0},
            "unanswered": (),
        }
        return NodeStatus.model_validate({**values, **changes})

    return make


@pytest.fixture
def asked(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks a coordinator by its URL asks the fake pool's."""
    for module in ("basis", "local_check"):
        client = f"protocol.checks.{module}.CoordinatorClient"
        monkeypatch.setattr(client, lambda url: CoordinatorClient(url, transport=httpx.MockTransport(pool.handle)))
    real = httpx.Client
    transport = httpx.MockTransport(pool.handle)
    monkeypatch.setattr(httpx, "Client", lambda **options: real(**options | {"transport": transport}))
