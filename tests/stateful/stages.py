"""Where runs begin: an open pool, one with judged work, one with cases before a jury, one that is closing.

Random steps alone seldom come from a lease to a verdict of a jury. So each stage is built once, by hand, and many runs
start from it; what they do then is anybody's guess.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio.from_thread

from coordinator.config import CoordinatorConfig
from coordinator.indexer import index_chain
from coordinator.rules import remember_rules
from coordinator.sender import send_outbox
from protocol.chain.cases import CaseState
from protocol.reasons import Outcome, RejectReason
from testnet.chain.genesis import dev_signers
from tests.integration.conftest import (
    CREDIT,
    NUM_VALIDATORS,
    LocalChain,
    World,
    create_pool,
    fund_pool,
    join,
    open_world,
)
from tests.integration.test_audit import accuse
from tests.integration.test_earnings import commit, propose
from tests.stateful.node import KeptNode
from tests.stateful.play import Play, Tally
from tests.stateful.trying import TryingRules

NUM_JURORS_MORE = 4
PLENTY_WEI = 10**6 * CREDIT
CLOSING_SECONDS = 970
"""From a pool's close until nearly the time of its refund."""


@dataclass(frozen=True)
class Stage:
    """A chain and a database to begin from."""

    config: CoordinatorConfig
    chain_file: Path
    database: bytes
    first_block: int
    """Blocks from here on are the run's own."""


@dataclass
class Stages:
    """One node with one deployment, and what was built on it so far."""

    node: KeptNode
    chain: LocalChain
    folder: Path
    portal: anyio.from_thread.BlockingPortal
    database: bytes
    """Without anything in it."""
    built: dict[str, Stage] = field(default_factory=dict)
    snapshot: tuple[int, str] = (0, "")
    """Of the stage in use, and the node's start that has it."""

    def stage(self, name: str) -> Stage:
        """Built once, on the one that comes before it."""
        if name not in self.built:
            build, before = BUILDERS[name]
            with self._world(before) as world:
                build(world, self.node)
                index_chain(world.coordinator)
                config = world.coordinator.config
            self.built[name] = self._keep(name, config)
        self.snapshot = (0, "")
        return self.built[name]

    @contextmanager
    def begin(self, stage: Stage, tally: Tally) -> Iterator[Play]:
        """A run: the stage, to be changed."""
        if self.snapshot[0] == self.node.num_starts:
            self.node.revert(self.snapshot[1])
        else:
            self.node.load(stage.chain_file)
        self.snapshot = (self.node.num_starts, self.node.snapshot())
        with self._opened(stage) as world:
            yield Play(world, self.node, tally)

    @contextmanager
    def _world(self, before: str | None) -> Iterator[World]:
        """A pool of nobody yet, or a stage to go on from."""
        if before is not None:
            stage = self.stage(before)
            self.node.load(stage.chain_file)
        else:
            stage = Stage(create_pool(self.chain, self.folder), Path(), self.database, 0)
        with self._opened(stage) as world:
            yield world

    @contextmanager
    def _opened(self, stage: Stage) -> Iterator[World]:
        for left in self.folder.glob("coordinator.sqlite*"):
            left.unlink()
        (self.folder / "coordinator.sqlite").write_bytes(stage.database)
        world = with_jurors(open_world(self.chain, stage.config, self.portal))
        try:
            yield world
        finally:
            world.coordinator.engine.dispose()

    def _keep(self, name: str, config: CoordinatorConfig) -> Stage:
        """The chain and the coordinator's database, which nothing writes to, as they are."""
        with closing(sqlite3.connect(self.folder / "coordinator.sqlite")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        chain_file = self.folder / f"{name}.json"
        self.node.save(chain_file)
        database = (self.folder / "coordinator.sqlite").read_bytes()
        return Stage(config, chain_file, database, self.node.client.head().number + 1)


def with_jurors(world: World) -> World:
    """Validators enough that some have no part in a case."""
    first = 4 + NUM_VALIDATORS
    world.validators.extend(dev_signers(first + NUM_JURORS_MORE)[first:])
    return world


def open_pool(world: World, node: KeptNode) -> None:
    """Funded, with version 0, a node at work, and everybody able to pay."""
    with world.coordinator.writing() as session:
        remember_rules(session, world.rules)
    creator = world.chain.creator
    fund_pool(world, creator)
    join(world)
    for signer in (world.provider, *world.validators, creator, world.coordinator.signer):
        world.send(creator, "credits", "mint", signer.address, 1000 * CREDIT)
        for contract in ("registry", "pools"):
            world.send(signer, "credits", "approve", world.contracts.address(contract), PLENTY_WEI)
    world.publish(0)
    send_outbox(world.coordinator)
    world.close_epoch()


def judged_pool(world: World, node: KeptNode) -> None:
    """Paid work behind a root that can't be claimed yet, one submission that two seats condemned, one that is drawn."""
    world.accept()
    commit(world, propose(world))
    condemned(world)
    world.submit()
    for _ in range(2):
        world.close_epoch()


def tried_pool(world: World, node: KeptNode) -> None:
    """An accusation that is appealed, and a jury that is to vote."""
    submission_id = condemned_of(world)
    accuse(world, submission_id)
    play = Play(world, node, Tally())
    pool = play.pool(world.provider)
    pool.appeal(submission_id)
    assert pool.case_of(submission_id).state is CaseState.APPEALED
    TryingRules._seat(_Machine(play), submission_id)  # type: ignore[arg-type]


def closing_pool(world: World, node: KeptNode) -> None:
    """Shortly before its refund: earnings that can be claimed, a case that may take some, stake that is let go."""
    accepted = world.accept()
    commit(world, propose(world))
    play = Play(world, node, Tally())
    machine, challenger = _Machine(play), play.pool(world.chain.creator)
    challenger.challenge(TryingRules._challenge(machine, accepted))  # type: ignore[arg-type]
    payment = TryingRules._payment(machine, accepted)  # type: ignore[arg-type]
    assert payment is not None
    challenger.hold_payment(accepted, payment)
    world.send(world.validators[0], "registry", "releaseSeat", world.pool_id, 0)
    world.send(world.provider, "registry", "deallot", world.node.address, world.pool_id, 5 * CREDIT)
    world.send(world.chain.creator, "pools", "close", world.pool_id)
    node.pass_time(CLOSING_SECONDS)


@dataclass
class _Machine:
    """As much of one as a rule's parts ask for."""

    play: Play

    _inclusion = TryingRules._inclusion


def condemned(world: World) -> str:
    submission_id = world.submit()
    world.judge(submission_id, Outcome.SLASH, RejectReason.WRONG_PROMPTS)
    assert world.standing(submission_id) == "rejected"
    return submission_id


def condemned_of(world: World) -> str:
    return next(one.submission_id for one in world.client().submissions() if one.standing == "rejected")


BUILDERS: dict[str, tuple[Callable[[World, KeptNode], None], str | None]] = {
    "open": (open_pool, None),
    "judged": (judged_pool, "open"),
    "tried": (tried_pool, "judged"),
    "closing": (closing_pool, "open"),
}
"""How each is made, and from which."""
