"""A coordinator without sockets or chain: requests go straight into the app, the chain is rows in its mirrors.

`site` is the coordinator with everything around it; `site.lease()`, `site.submit()`, `site.judge()` take work
along its way, `site.close_epoch()` does what indexer and epochs do in a running coordinator.
"""

from __future__ import annotations

import base64
import io
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio.from_thread
import httpx
import numpy as np
import pytest
from sqlalchemy import event

from coordinator.api.app import create_app
from coordinator.blobs import BlobStore
from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator, Deployment
from coordinator.db import chain as mirror
from coordinator.db.engine import open_engine
from coordinator.db.migrate import migrate
from coordinator.draws import open_draws
from coordinator.log import log_size, open_epoch
from coordinator.log_nodes import LogNodes
from coordinator.rules import remember_rules
from coordinator.settle import settle
from protocol.api import Assignment, ContractAddresses, SubmissionEnvelope, VerdictReveal
from protocol.canonical import canonical_hash, hex0x, keccak256, sha256
from protocol.client import ENVELOPE_HEADER, CoordinatorClient
from protocol.http import RequestSigner
from protocol.merkle.commitment import CommitmentTree, salted_digest
from protocol.merkle.history import root_of
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import FileHeader, Rollout, content_hash, write_rollouts
from protocol.rules import EnvironmentRules, FlipTest, Limit, Rules, SamplingRules, Thresholds
from protocol.signing import Signer, SigningDomain
from protocol.telemetry import configure_logging
from protocol.wire import (
    CheckResult,
    Evidence,
    Receipt,
    Signed,
    StampReview,
    Submission,
    Task,
    Verdict,
    VerdictCommitment,
)

POOL_ID = 1
HOST = "coordinator.test"
SALT = "0x" + "5a" * 32
NEVER_REVEALED = "0x" + "a5" * 32
"""A submission of nobody's, so that a commitment has more than one leaf."""
PRICE, VERIFY_PRICE = 10, 1


class StandingClock:
    """Time that only moves when a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def now(self) -> float:
        return self.seconds

    def wait(self, stop: Any, seconds: float) -> bool:
        self.seconds += seconds
        return bool(stop.is_set())


class AppTransport(httpx.BaseTransport):
    """Sends requests into an ASGI app, from a thread that isn't the app's."""

    def __init__(self, app: Any, portal: anyio.from_thread.BlockingPortal) -> None:
        self._asgi = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._portal.call(self._exchange, request)

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        streamed = await self._asgi.handle_async_request(
            httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        )
        content = await streamed.aread()
        return httpx.Response(streamed.status_code, headers=streamed.headers, content=content)


@dataclass
class Site:
    """A coordinator and everybody around it. Node, trainer and validators have keys of their own."""

    coordinator: Coordinator
    rules: Rules
    transport: httpx.BaseTransport
    clock: StandingClock
    node: Signer
    trainer: Signer
    validators: list[Signer]
    num_blocks: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def domain(self) -> SigningDomain:
        return self.coordinator.domain

    def client(self, signer: Signer | None = None) -> CoordinatorClient:
        auth = None if signer is None else RequestSigner(signer, self.domain, self.clock)
        return CoordinatorClient(f"http://{HOST}", auth, transport=self.transport)

    def http(self, signer: Signer | None = None, domain: SigningDomain | None = None) -> httpx.Client:
        """For requests that no honest client sends."""
        auth = None if signer is None else RequestSigner(signer, domain or self.domain, self.clock)
        return httpx.Client(base_url=f"http://{HOST}", auth=auth, transport=self.transport)

    def put(
        self, envelope: SubmissionEnvelope, submission_id: str, file: bytes, sender: Signer | None = None
    ) -> httpx.Response:
        """Hand in whatever this is."""
        header = base64.urlsafe_b64encode(envelope.model_dump_json().encode()).decode()
        with self.http(sender or self.node) as http:
            return http.put(f"/v1/submissions/{submission_id}", content=file, headers={ENVELOPE_HEADER: header})

    def dump(self) -> list[str]:
        """The whole database, as SQL."""
        connection = sqlite3.connect(self.coordinator.config.data_dir / "coordinator.sqlite")
        with closing(connection):
            return list(connection.iterdump())

    # What the indexer does

    def mine(self, seconds: int = 1) -> None:
        """A block, `seconds` of chain time after the last one."""
        self.num_blocks += 1
        self.clock.seconds += seconds
        with self.coordinator.writing() as session:
            block = mirror.ChainBlock(
                number=self.num_blocks, block_hash=number_hash(self.num_blocks), time=int(self.clock.seconds)
            )
            session.add(block)

    def mirror(self, *rows: Any) -> None:
        """Put mirror rows as they are."""
        with self.coordinator.writing() as session:
            for row in rows:
                session.merge(row)

    def add_node(self, node: str, provider: str, allotment_wei: int = 100) -> None:
        self.mirror(
            mirror.Node(address=node, provider=provider, removed=False),
            mirror.Allotment(node=node, pool_id=POOL_ID, amount_wei=allotment_wei, held_wei=0),
        )

    def add_seat(self, index: int, validator: str, active_from_epoch: int = 0) -> None:
        self.mirror(
            mirror.Seat(
                pool_id=POOL_ID,
                seat=index,
                validator=validator,
                active_from_epoch=active_from_epoch,
                active_until_epoch=None,
            )
        )

    def publish(self, policy_version: int, sealed: bool = True) -> None:
        self.mirror(
            mirror.Version(
                pool_id=POOL_ID,
                policy_version=policy_version,
                manifest_hash=number_hash(policy_version),
                beacon_block=self.num_blocks,
                beacon_hash=number_hash(1000 + policy_version) if sealed else None,
                published_time=int(self.clock.seconds),
                release_signature=None,
            )
        )

    def pool(self, **changes: Any) -> None:
        """Change the pool's record."""
        with self.coordinator.writing() as session:
            row = session.get_one(mirror.Pool, POOL_ID)
            for name, value in changes.items():
                setattr(row, name, value)

    def funded(self) -> int:
        with self.coordinator.reading() as session:
            return session.get_one(mirror.Pool, POOL_ID).funded_wei

    def close_epoch(self) -> int:
        """Anchor all leaves so far; the epoch has its beacon at once."""
        with self.coordinator.writing() as session:
            epoch, size = open_epoch(session), log_size(session)
            session.add(
                mirror.Epoch(
                    epoch=epoch,
                    size=size,
                    root=root_of(LogNodes(session), size),
                    transaction_hash=number_hash(epoch),
                    block=self.num_blocks,
                    beacon_hash=number_hash(2000 + epoch),
                )
            )
        return epoch

    # What a worker does

    def lease(self, policy_version: int = 0, node: Signer | None = None) -> Signed[Task]:
        return self.client(node or self.node).lease(policy_version)

    def rollouts(self, task: Task) -> list[Rollout]:
        """Rows that fit the task; in each group rewards differ."""
        return [
            self.rollout(task, group, member)
            for group in range(self.rules.groups_per_task)
            for member in range(self.rules.group_size)
        ]

    def rollout(self, task: Task, group: int, member: int) -> Rollout:
        num_tokens = int(self.rng.integers(1, self.rules.sampling.max_new_tokens + 1))
        tokens = self.rng.integers(0, 50, num_tokens).astype(np.int32)
        return Rollout(
            input_tokens=np.array([task.policy_version, task.counter, group], dtype=np.int32),
            output_tokens=tokens,
            output_logprobs=-self.rng.random(num_tokens).astype(np.float32),
            task_reward=float(member % 2),
            proofs=proof_bytes(num_tokens),
            step=task.policy_version,
            problem_id=f"{task.counter}/{group}",
            task_type="sums",
            target_length=-1,
            finish_reason="stop",
        )

    def header(self, task: Task, **changes: Any) -> FileHeader:
        values = {"task_id": task.id(self.domain), "group_size": self.rules.group_size, "sampling": self.rules.sampling}
        return FileHeader(**(values | changes))

    def pack(
        self,
        task: Task,
        rollouts: list[Rollout] | None = None,
        *,
        header: FileHeader | None = None,
        node: Signer | None = None,
        **changes: Any,
    ) -> tuple[SubmissionEnvelope, str, bytes]:
        """Envelope, id and file; `changes` go into the signed `Submission`."""
        rows = self.rollouts(task) if rollouts is None else rollouts
        head = header or self.header(task)
        file = write_rollouts(head, rows)
        values = {
            "pool_id": task.pool_id,
            "policy_version": task.policy_version,
            "node": task.node,
            "counter": task.counter,
            "rules_hash": task.rules_hash,
            "content_hash": content_hash(head, rows),
        }
        message = Submission(**(values | changes))
        signed = Signed[Submission].by(node or self.node, message, self.domain)
        envelope = SubmissionEnvelope(submission=signed, file_sha256=hex0x(sha256(file)), num_bytes=len(file))
        return envelope, message.id(self.domain), file

    def submit(self, task: Signed[Task] | None = None, node: Signer | None = None) -> str:
        """Lease, fill in, hand in: the submission's id."""
        leased = task or self.lease(node=node)
        envelope, submission_id, file = self.pack(leased.message, node=node)
        receipt: Signed[Receipt] = self.client(node or self.node).submit(envelope, submission_id, file)
        assert receipt.message.submission_id == submission_id
        return submission_id

    # What a verifier does

    def validator(self, address: str) -> Signer:
        return next(signer for signer in self.validators if signer.address == address)

    def verdict(
        self,
        work: Assignment,
        outcome: Outcome = Outcome.ACCEPT,
        reason: RejectReason | None = None,
        stamp_reviews: tuple[StampReview, ...] = (),
    ) -> tuple[Signed[Verdict], Evidence]:
        evidence = Evidence(
            submission_id=work.submission_id,
            seed=number_hash(7),
            num_units=1,
            checks=(CheckResult(check="envelope", outcome=outcome),),
            stamp_reviews=stamp_reviews,
        )
        message = Verdict(
            submission_id=work.submission_id,
            pool_id=POOL_ID,
            epoch=work.epoch,
            round=work.round,
            seat=work.seat,
            outcome=outcome,
            reason=reason.code if reason else 0,
            rules_hash=work.task.message.rules_hash,
            evidence_hash=canonical_hash(evidence.as_json()),
        )
        signer = self.seat_signer(work.seat)
        return Signed[Verdict].by(signer, message, self.domain), evidence

    def seat_signer(self, seat: int) -> Signer:
        with self.coordinator.reading() as session:
            return self.validator(session.get_one(mirror.Seat, (POOL_ID, seat)).validator)

    def commit(
        self,
        work: Assignment,
        outcome: Outcome = Outcome.ACCEPT,
        reason: RejectReason | None = None,
        part: int = 0,
        stamp_reviews: tuple[StampReview, ...] = (),
    ) -> VerdictReveal:
        """Commit to one verdict, beside another that is kept back; what reveals it."""
        verdict, evidence = self.verdict(work, outcome, reason, stamp_reviews)
        salted = salted_digest(verdict.message.id(self.domain), SALT)
        tree = CommitmentTree({work.submission_id: salted, NEVER_REVEALED: SALT})
        message = VerdictCommitment(
            pool_id=POOL_ID, epoch=work.verdict_epoch, seat=work.seat, part=part, root=tree.root
        )
        signer = self.seat_signer(work.seat)
        self.client(signer).commit_verdicts(Signed[VerdictCommitment].by(signer, message, self.domain))
        return VerdictReveal(
            verdict=verdict,
            evidence=evidence,
            salt=SALT,
            commitment_epoch=work.verdict_epoch,
            part=part,
            path=tree.proof(work.submission_id),
        )

    def reveal(self, opened: VerdictReveal) -> None:
        self.client(self.seat_signer(opened.verdict.message.seat)).reveal_verdict(opened)

    def assignments(self) -> list[Assignment]:
        """What all validators have to judge."""
        return [work for signer in self.validators for work in self.client().assignments(signer.address)]

    def judge(self, submission_id: str, outcome: Outcome = Outcome.ACCEPT, reason: RejectReason | None = None) -> None:
        """Everything from an unanchored submission to its decision, if the open draws are enough for one."""
        self.close_epoch()
        open_draws(self.coordinator)
        drawn = [work for work in self.assignments() if work.submission_id == submission_id]
        opened = [self.commit(work, outcome, reason, part=self.part()) for work in drawn]
        self.close_epoch()
        for one in opened:
            self.reveal(one)
        settle(self.coordinator)

    def part(self) -> int:
        """A part number that no commitment has had."""
        self._parts = getattr(self, "_parts", -1) + 1
        return self._parts

    def accept(self, node: Signer | None = None, policy_version: int = 0) -> str:
        """One accepted submission."""
        submission_id = self.submit(self.lease(policy_version, node), node)
        self.judge(submission_id)
        assert self.standing(submission_id) == "accepted"
        return submission_id

    def standing(self, submission_id: str) -> str:
        return self.client().submission(submission_id).standing.value


def number_hash(number: int) -> str:
    return hex0x(keccak256(number.to_bytes(8, "big")))


def proof_bytes(num_tokens: int, topk: int = 128) -> bytes:
    """Canonical proofs of nothing."""
    num_chunks = -(-num_tokens // 32)
    words = np.zeros((num_chunks, 1 + topk), dtype=">u2")
    words[:, 0] = 65497
    return words.tobytes()


def make_rules(**changes: Any) -> Rules:
    limit = Limit(reject=0.1, slash=0.5)
    thresholds = Thresholds(
        toploc_exp_mismatch_share=limit,
        toploc_mantissa_mean=limit,
        sampling_margin_mean=limit,
        sampling_margin_max=limit,
        sampling_flips=FlipTest(rate=0.00001),
        logprob_error_mean=limit,
    )
    values: dict[str, Any] = {
        "environment": EnvironmentRules(name="sums", environment_hash=number_hash(1)),
        "sampling": SamplingRules(max_new_tokens=40),
        "thresholds": thresholds,
        "group_size": 2,
        "groups_per_task": 2,
        "max_file_bytes": 100_000,
    }
    return Rules(**(values | changes))


@pytest.fixture(autouse=True, scope="session")
def quiet_logs() -> None:
    """Log lines as a server writes them, but nowhere."""
    configure_logging("coordinator", "json", stream=io.StringIO())


@pytest.fixture(scope="session")
def portal() -> Iterator[anyio.from_thread.BlockingPortal]:
    with anyio.from_thread.start_blocking_portal() as running:
        yield running


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A migrated database, made once."""
    path = tmp_path_factory.mktemp("empty") / "empty.sqlite"
    engine = open_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path.read_bytes()


def make_site(folder: Path, database: bytes, portal: anyio.from_thread.BlockingPortal) -> Site:
    """A pool with funds, version 0, one node of one provider, and three validators with a seat each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coordinator.sqlite").write_bytes(database)
    signers = [Signer(number.to_bytes(32, "big")) for number in range(1, 8)]
    coordinator_key, trainer, node, provider, *validators = signers
    domain = SigningDomain(chain_id=31337, contract="0x" + "11" * 20, salt="0x" + "22" * 32)
    names = ("credits", "registry", "pools", "ledger", "court", "jury")
    contracts = ContractAddresses(**{name: f"0x{i:040x}" for i, name in enumerate(names, 1)})
    rules = make_rules()
    clock = StandingClock()
    config = CoordinatorConfig(
        chain_url="http://chain.test",
        pool_id=POOL_ID,
        ledger=domain.contract,
        keystore=folder / "none.json",
        data_dir=folder,
        public_hosts=(HOST,),
        groups_per_step=2,
        backlog_steps=5,
        reveal_epochs=3,
    )
    engine = open_engine(config.resolved_database_url)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    coordinator = Coordinator(
        config,
        engine=engine,
        blobs=BlobStore(folder / "blobs"),
        deployment=Deployment(domain, contracts),
        signer=coordinator_key,
        clock=clock,
        chain=None,
    )
    site = Site(coordinator, rules, AppTransport(create_app(coordinator), portal), clock, node, trainer, validators)
    with coordinator.writing() as session:
        remember_rules(session, rules)
    site.mirror(pool_row(rules, coordinator_key.address, trainer.address))
    site.mine()
    site.publish(0)
    site.add_node(node.address, provider.address)
    for index, validator in enumerate(validators):
        site.add_seat(index, validator.address)
    return site


def pool_row(rules: Rules, coordinator: str, trainer: str) -> mirror.Pool:
    return mirror.Pool(
        pool_id=POOL_ID,
        coordinator=coordinator,
        trainer=trainer,
        rules_hash=rules.rules_hash,
        model_hash=number_hash(3),
        price_wei=PRICE,
        verify_price_wei=VERIFY_PRICE,
        min_allotment_wei=100,
        funded_wei=10**9,
        max_async=2,
        accept_quorum=1,
        slash_quorum=2,
        draw_limit=5,
        reaudit_bps=0,
        confirmations=1,
        lease_max_seconds=60,
        paused=False,
        closing=False,
    )


@pytest.fixture
def site(tmp_path: Path, empty_database: bytes, portal: anyio.from_thread.BlockingPortal) -> Iterator[Site]:
    made = make_site(tmp_path, empty_database, portal)
    yield made
    made.coordinator.engine.dispose()


@pytest.fixture
def site_maker() -> Callable[..., Site]:
    """For tests that need several sites."""
    return make_site
