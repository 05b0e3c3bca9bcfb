"""A coordinator on a real local chain: contracts deployed once, a pool of its own for each test.

`world` is the unit tests' `Site` whose mirrors come from the chain: the same words (`lease`, `submit`, `judge`), but
epochs are committed, beacons are sealed and money is held by contracts. Blocks come when a test makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from sqlalchemy import event

from contracts.deployment import Parameters, deploy
from coordinator.api.app import create_app
from coordinator.blobs import BlobStore
from coordinator.bond import complete_bond
from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator, Deployment
from coordinator.db.chain import Epoch, Version
from coordinator.db.engine import open_engine
from coordinator.db.log import Outbox
from coordinator.draws import open_draws
from coordinator.epochs import close_epoch, newest_epoch
from coordinator.indexer import index_chain
from coordinator.outbox import CallState
from coordinator.rules import remember_rules
from coordinator.sender import send_outbox
from coordinator.settle import settle
from coordinator.versions import announce_weights, seal_versions
from protocol.chain.block import Receipt
from protocol.chain.client import ChainClient
from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.chain.rpc import JsonRpc
from protocol.clock import Clock, SystemClock
from protocol.merkle.checkpoint import origin_of
from protocol.merkle.note import NoteSigner, public_key_of
from protocol.reasons import SLASHABLE_MASK, Outcome, RejectReason
from protocol.rules import Rules
from protocol.signing import Signer
from protocol.wire import NodeAuthorization, Signed, WeightsRelease
from testnet.chain.anvil import find_anvil, start_anvil
from testnet.chain.genesis import CHAIN_ID, dev_signers
from testnet.chain.node import start_embedded
from testnet.chain.process import NodeProcess
from tests.unit.coordinator.conftest import (
    HOST,
    AppTransport,
    Site,
    StandingClock,
    empty_database,
    make_rules,
    number_hash,
    portal,
    quiet_logs,
)

__all__ = ["empty_database", "portal", "quiet_logs"]

CREDIT = 10**18
PRICE_WEI, VERIFY_PRICE_WEI = 3 * 10**15 + 1, 10**13 + 7
COORDINATOR_BOND_WEI = 20 * CREDIT
NUM_VALIDATORS = 3
_BRANCHES = count(1)
LOG_SECRET = b"of a log that tests keep  32 byte"[:32]
SETTLING = {"judge_period": 40, "challenge_window": 15, "appeal_period": 15, "jury_period": 200}


@dataclass(frozen=True)
class LocalChain:
    """A node and the contracts on it."""

    process: NodeProcess
    contracts: Contracts

    @property
    def creator(self) -> Signer:
        """Deployer, minter, and creator of every pool."""
        return dev_signers(1)[0]

    def lane(self, signer: Signer) -> Lane:
        return Lane(self.contracts.client, signer, SystemClock())

    def send(self, signer: Signer, contract: str, function: str, *arguments: Any) -> Receipt:
        return self.contracts.send(self.lane(signer), contract, function, *arguments)

    def mine(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            self.contracts.client.rpc.call("evm_mine")

    def be_another_branch(self) -> None:
        """See that no block of before comes again: anvil keeps 256 states by hash, and forgets one that came twice."""
        if str(self.contracts.client.rpc.call("web3_clientVersion")).startswith("anvil"):
            self.contracts.client.rpc.call("anvil_setCoinbase", f"0x{next(_BRANCHES):040x}")

    def reorg(self, num_blocks: int) -> None:
        """Other, empty blocks instead of the newest ones."""
        self.contracts.client.rpc.call("anvil_reorg", num_blocks, [])

    def pass_time(self, seconds: int) -> None:
        self.contracts.client.rpc.call("evm_increaseTime", seconds)
        self.mine()


NODES = [pytest.param("anvil"), pytest.param("embedded", marks=() if find_anvil() is None else pytest.mark.slow)]

ON_ONE_NODE = pytest.mark.parametrize(
    "local_chain", ["embedded" if find_anvil() is None else "anvil"], indirect=True, scope="session"
)
"""For tests to which it makes no difference which node there is."""


@pytest.fixture(scope="session", params=NODES)
def local_chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalChain]:
    """Either node, with a block for each transaction; the embedded one is for the slow tests where anvil is there."""
    folder, binary = tmp_path_factory.mktemp(request.param), find_anvil()
    if request.param == "anvil" and binary is None:
        pytest.skip("anvil isn't installed: `make anvil` gets it from npm")
    process = (
        start_anvil(binary, folder, SystemClock(), block_seconds=0)
        if request.param == "anvil" and binary is not None
        else start_embedded(folder, SystemClock(), block_seconds=0)
    )
    with process:
        contracts = deploy_contracts(process.url)
        yield LocalChain(process, contracts)
        contracts.client.rpc.close()


def deploy_contracts(url: str, unbonding_seconds: int = 600) -> Contracts:
    deployer = dev_signers(1)[0]
    client = ChainClient(JsonRpc(url), CHAIN_ID)
    lane = Lane(client, deployer, SystemClock())
    parameters = Parameters(minter=deployer.address, unbonding_seconds=unbonding_seconds, salt="0x" + "5a" * 32)

    def create(init_code: bytes) -> str:
        return str(lane.send(None, init_code).contract_address)

    addresses = deploy(create, deployer.address, 0, parameters)
    client.rpc.close()
    return Contracts.connect(url, addresses.ledger, SystemClock())


@dataclass
class World(Site):
    """A pool on a real chain and everybody in it."""

    chain: LocalChain = None  # type: ignore[assignment]
    pool_id: int = 0
    provider: Signer = None  # type: ignore[assignment]
    portal: anyio.from_thread.BlockingPortal = None  # type: ignore[assignment]

    @property
    def contracts(self) -> Contracts:
        return self.chain.contracts

    def read(self, contract: str, function: str, *arguments: Any) -> Any:
        return self.contracts.read(contract, function, *arguments)

    def send(self, signer: Signer, contract: str, function: str, *arguments: Any) -> Receipt:
        return self.chain.send(signer, contract, function, *arguments)

    def mine(self, seconds: int = 1) -> None:
        self.chain.mine()

    def publish(self, policy_version: int, sealed: bool = True, manifest_hash: str | None = None) -> None:
        """A version on chain, announced, and sealed by the coordinator."""
        manifest_hash = manifest_hash or number_hash(policy_version)
        index_chain(self.coordinator)
        self.send(self.trainer, "ledger", "publishWeights", self.pool_id, policy_version, manifest_hash)
        message = WeightsRelease(pool_id=self.pool_id, policy_version=policy_version, manifest_hash=manifest_hash)
        announce_weights(self.coordinator, Signed[WeightsRelease].by(self.trainer, message, self.domain))
        if sealed:
            self.run_until(lambda: self.version(policy_version).beacon_hash is not None, [seal_versions, send_outbox])

    def version(self, policy_version: int) -> Version:
        with self.coordinator.reading() as session:
            return session.get_one(Version, (self.pool_id, policy_version))

    def run_until(self, holds: Callable[[], bool], stages: list[Callable[[Coordinator], None]]) -> None:
        """Index, run the stages and make a block until it holds; a few blocks must be enough."""
        for _ in range(20):
            index_chain(self.coordinator)
            if holds():
                return
            for stage in stages:
                stage(self.coordinator)
            self.chain.mine()
        raise AssertionError("it doesn't come to hold")

    def close_epoch(self) -> int:
        """Close the open epoch and see it committed."""
        before = self.epoch()
        number = 0 if before is None else before.epoch + 1

        def is_committed() -> bool:
            newest = self.epoch()
            return newest is not None and newest.epoch == number and newest.block is not None

        def close(coordinator: Coordinator) -> None:
            if (newest := self.epoch()) is None or newest.epoch < number:
                close_epoch(coordinator, forced=True)

        self.run_until(is_committed, [close, send_outbox, send_outbox])
        return number

    def epoch(self) -> Epoch | None:
        with self.coordinator.reading() as session:
            return newest_epoch(session)

    def judge(self, submission_id: str, outcome: Outcome = Outcome.ACCEPT, reason: RejectReason | None = None) -> None:
        """From an unanchored submission to its decision: its epoch, the beacon, verdicts committed, revealed."""
        self.close_epoch()
        self.close_epoch()
        for _ in range(2):
            open_draws(self.coordinator)
            drawn = [work for work in self.assignments() if work.submission_id == submission_id]
            opened = [self.commit(work, outcome, reason, part=self.part()) for work in drawn]
            self.close_epoch()
            for one in opened:
                self.reveal(one)
            settle(self.coordinator)
            if self.standing(submission_id) != "received":
                return

    def restart(self) -> None:
        """A new process over the same database."""
        self.coordinator.engine.dispose()
        config = self.coordinator.config
        self.coordinator = make_coordinator(config, self.contracts, self.coordinator.signer, self.clock)
        self.transport = AppTransport(create_app(self.coordinator), self.portal)

    def outbox_row(self, purpose: str) -> Outbox:
        with self.coordinator.reading() as session:
            return session.query(Outbox).filter(Outbox.purpose == purpose).one()

    def outbox(self, state: CallState) -> list[str]:
        with self.coordinator.reading() as session:
            return [row.purpose for row in session.query(Outbox).order_by(Outbox.id) if row.state == state]


def make_coordinator(config: CoordinatorConfig, contracts: Contracts, signer: Signer, clock: Any) -> Coordinator:
    engine = open_engine(config.resolved_database_url)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    return Coordinator(
        config,
        engine=engine,
        blobs=BlobStore(config.data_dir / "blobs"),
        deployment=Deployment(contracts.domain, contracts.addresses),
        signer=signer,
        clock=clock,
        chain=contracts,
        log_signer=NoteSigner(origin_of(CHAIN_ID, contracts.addresses.ledger, config.pool_id), LOG_SECRET),
    )


def pool_config(rules: Rules, coordinator: Signer, trainer: Signer) -> dict[str, Any]:
    return {
        **{name: number_hash(1) for name in ("model_hash", "environment_hash")},
        "rules_hash": rules.rules_hash,
        "checkpoint_key": "0x" + public_key_of(LOG_SECRET).hex(),
        "slashable_mask": SLASHABLE_MASK,
        "price": PRICE_WEI,
        "verify_price": VERIFY_PRICE_WEI,
        "min_allotment": 10 * CREDIT,
        "seat_bond": 5 * CREDIT,
        "appeal_bond": CREDIT,
        "challenge_bond": CREDIT,
        "epoch_max": 60,
        **SETTLING,
        "retention": 600,
        "lease_max": 60,
        "accept_quorum": 1,
        "slash_quorum": 2,
        "jury_size": 3,
        "draw_limit": 5,
        "bounty_cap": CREDIT,
        "coordinator_bond": COORDINATOR_BOND_WEI,
        "first_slash_bps": 1000,
        "later_slash_bps": 10_000,
        "bounty_bps": 1000,
        "reaudit_bps": 0,
        "max_async": 2,
        "max_units": rules.max_units,
        "coordinator": coordinator.address,
        "coordinator_timeout": 600,
        "confirmations": 1,
        "trainer": trainer.address,
        "token": "0x" + "00" * 20,
    }


@dataclass(frozen=True)
class Start:
    """A pool that is set up, to be taken up by each test: the chain's snapshot and the coordinator's database."""

    chain: LocalChain
    config: CoordinatorConfig
    database: bytes

    def restore(self, folder: Path, snapshot: str, portal: anyio.from_thread.BlockingPortal) -> World:
        if not self.chain.contracts.client.rpc.call("evm_revert", snapshot):
            raise AssertionError("the chain can't go back to its snapshot")
        (folder / "coordinator.sqlite").write_bytes(self.database)
        return open_world(self.chain, self.config.model_copy(update={"data_dir": folder}), portal)


@pytest.fixture(scope="session")
def start(
    local_chain: LocalChain,
    tmp_path_factory: pytest.TempPathFactory,
    empty_database: bytes,
    portal: anyio.from_thread.BlockingPortal,
) -> Start:
    """A funded pool with version 0, one allotted node, three validators with a seat each, all indexed."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "coordinator.sqlite").write_bytes(empty_database)
    config = create_pool(local_chain, folder)
    world = open_world(local_chain, config, portal)
    with world.coordinator.writing() as session:
        remember_rules(session, world.rules)
    fund_pool(world, local_chain.creator)
    join(world)
    world.publish(0)
    send_outbox(world.coordinator)
    with world.coordinator.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    world.coordinator.engine.dispose()
    return Start(local_chain, config, (folder / "coordinator.sqlite").read_bytes())


@pytest.fixture(scope="session")
def snapshots(start: Start) -> list[str]:
    """The newest snapshot of the start: one works once."""
    return [start.chain.contracts.client.rpc.call("evm_snapshot")]


@contextmanager
def new_world(
    start: Start, snapshots: list[str], folder: Path, portal: anyio.from_thread.BlockingPortal
) -> Iterator[World]:
    """The start, to be changed; whatever was before it is gone from the chain."""
    made = start.restore(folder, snapshots.pop(), portal)
    snapshots.append(start.chain.contracts.client.rpc.call("evm_snapshot"))
    made.chain.be_another_branch()
    made.chain.mine()  # in the time of now: the start's newest block is as old as the tests before this one took
    index_chain(made.coordinator)
    yield made
    made.coordinator.engine.dispose()


@pytest.fixture
def world(
    start: Start, snapshots: list[str], tmp_path: Path, portal: anyio.from_thread.BlockingPortal
) -> Iterator[World]:
    """The start, for one test."""
    with new_world(start, snapshots, tmp_path, portal) as made:
        yield made


def create_pool(chain: LocalChain, folder: Path, rules: Rules | None = None, **terms: int) -> CoordinatorConfig:
    """A pool of the usual terms, but for `terms`."""
    _, coordinator, trainer = dev_signers(3)
    first_block = chain.contracts.client.head().number
    config = pool_config(rules or make_rules(), coordinator, trainer) | terms
    receipt = chain.send(chain.creator, "pools", "createPool", config)
    return CoordinatorConfig(
        chain_url=chain.process.url,
        pool_id=int(chain.contracts.events(receipt)[0].arguments["pool_id"]),
        ledger=chain.contracts.addresses.ledger,
        keystore=folder / "none.json",
        data_dir=folder,
        public_hosts=(HOST,),
        groups_per_step=2,
        backlog_steps=5,
        epoch_seconds=10**6,
        epochs_per_earnings=1,
        first_block=first_block,
    )


def open_world(
    chain: LocalChain,
    config: CoordinatorConfig,
    portal: anyio.from_thread.BlockingPortal,
    rules: Rules | None = None,
    clock: Clock | None = None,
) -> World:
    _, key, trainer, provider, *validators = dev_signers(4 + NUM_VALIDATORS)
    clock = clock or StandingClock()
    coordinator = make_coordinator(config, chain.contracts, key, clock)
    return World(
        coordinator,
        rules or make_rules(),
        AppTransport(create_app(coordinator), portal),
        clock,
        Signer(bytes(31) + b"\x63"),
        trainer,
        validators,
        chain=chain,
        pool_id=config.pool_id,
        provider=provider,
        portal=portal,
    )


def fund_pool(world: World, creator: Signer) -> None:
    world.send(creator, "credits", "mint", creator.address, 1000 * CREDIT)
    world.send(creator, "credits", "approve", world.contracts.addresses.pools, 1000 * CREDIT)
    world.send(creator, "pools", "fund", world.pool_id, 1000 * CREDIT)
    world.send(creator, "credits", "mint", world.coordinator.signer.address, COORDINATOR_BOND_WEI)
    complete_bond(world.contracts, world.pool_id, world.coordinator.signer)


def join(world: World) -> None:
    """Provider and validators stake, the node is added and allotted, each validator bonds a seat."""
    registry = world.contracts.addresses.registry
    for signer in (world.provider, *world.validators):
        world.send(signer, "credits", "faucet", 100 * CREDIT)
        world.send(signer, "credits", "approve", registry, 100 * CREDIT)
        world.send(signer, "registry", "stake", 100 * CREDIT)
    message = NodeAuthorization(provider=world.provider.address, node=world.node.address, nonce=0, deadline=2**40)
    signature = world.node.sign(message, world.contracts.registry_domain)
    world.send(world.provider, "registry", "addNode", world.node.address, 0, 2**40, signature)
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, 50 * CREDIT)
    for validator in world.validators:
        world.send(validator, "registry", "bondSeat", world.pool_id)
