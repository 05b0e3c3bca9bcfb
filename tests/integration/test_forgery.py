"""Files of a real model before a jury, over HTTP: a forgery that bribed seats accepted, and honest work that isn't one.

The challenger's command, the coordinator's server, the weights' origin and the jurors' verifiers are the product's own.
The validators that accept in round 0 are the tests': they sign whatever they are paid for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest

from coordinator.rules import remember_rules
from protocol.chain.cases import CaseState, JuryRecord, Vote
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.environments.base import Environment
from protocol.http import RequestSigner
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.line import weights_client
from protocol.shardcast.origin import publish
from protocol.signing import Signer
from protocol.tokenizer import Tokenizer
from protocol.weights import CONFIG_FILE
from protocol.weights_parts import WEIGHTS_FILE
from testnet.chain.genesis import dev_signers
from testnet.chain.node import start_node
from testnet.plan import BASE_MODEL, OTHER_WEIGHTS
from testnet.rules import testnet_rules as make_testnet_rules
from testnet.task import testnet_environment as make_testnet_environment
from tests.integration.conftest import (
    CREDIT,
    NUM_VALIDATORS,
    PRICE_WEI,
    LocalChain,
    World,
    create_pool,
    deploy_contracts,
    fund_pool,
    join,
    open_world,
)
from tests.integration.served import served
from tests.integration.test_promise_commands import CREATOR, Command, Keys, call, document, refusal
from tests.worlds.generated import generate
from verifier.config import VerifierConfig
from verifier.loop import Verifier
from verifier.process import build_verifier

__all__ = ["call"]

NUM_JURORS_MORE = 4
TERMS = {"challenge_window": 1_000, "jury_period": 3_000, "retention": 8_000, "lease_max": 600}
"""By the chain's clock, which is the machine's: nobody is in a hurry here, however busy that is."""
UNBONDING_SECONDS = 5_000
SEAT_BOND, FINE, SLASH = 5 * CREDIT, 5 * CREDIT // 10, 5 * CREDIT
"""A share of ten percent: of a seat's bond, of the node's allotment of 50 credits."""


@dataclass
class RealPool:
    """A pool whose version 0 is the testnet's model, its coordinator behind a socket, and verifiers for its juries."""

    world: World
    environment: Environment
    url: str
    folder: Path
    ends: ExitStack
    verifiers: dict[str, Verifier] = field(default_factory=dict)

    @property
    def pool(self) -> ChainPool:
        return ChainPool(self.world.contracts, self.world.pool_id)

    def submit(self, model: Path) -> str:
        """Work made with the weights in a folder, handed in."""
        world, task = self.world, self.world.lease()
        rows = generate(world.rules, self.environment, model, task.message)
        envelope, submission_id, file = world.pack(task.message, rows)
        world.client(world.node).submit(envelope, submission_id, file)
        return submission_id

    def accept(self, model: Path) -> str:
        """The same, and whoever is drawn accepts it unseen."""
        submission_id = self.submit(model)
        self.world.judge(submission_id)
        assert self.world.standing(submission_id) == "accepted"
        return submission_id

    def verifier(self, signer: Signer) -> Verifier:
        """A validator's own verifier, which asks the coordinator's URL."""
        if signer.address not in self.verifiers:
            world = self.world
            config = VerifierConfig(
                coordinator_url=self.url,
                chain_url=world.chain.process.url,
                pool_id=world.pool_id,
                keystore=self.folder / "unused.json",
                data_dir=self.folder / signer.address,
            )
            client = CoordinatorClient(self.url, RequestSigner(signer, world.domain, SystemClock()))
            self.ends.callback(client.close)
            http = self.ends.enter_context(weights_client())
            chain = ChainPool(world.contracts, world.pool_id, lane=world.chain.lane(signer))
            self.verifiers[signer.address] = build_verifier(config, signer, chain, client, http, SystemClock())
        return self.verifiers[signer.address]

    def jury(self, case_id: str) -> JuryRecord:
        found = self.pool.jury_of(case_id)
        assert found is not None
        return found

    def seat(self, case_id: str) -> JuryRecord:
        """Anybody's verifier calls the jury; nobody votes yet."""
        caller = self.world.validators[0]
        self.until(lambda: self.jury(case_id).is_seated, [caller])
        return self.jury(case_id)

    def decide(self, case_id: str) -> CaseState:
        """The jurors' verifiers turn until the case is over."""
        jurors = [self.world.validator(juror.validator) for juror in self.seat(case_id).jurors]
        self.until(lambda: self.pool.case_of(case_id).state.is_over, jurors)
        return self.pool.case_of(case_id).state

    def until(self, holds: Callable[[], bool], signers: list[Signer]) -> None:
        for _ in range(10):
            if holds():
                return
            for signer in signers:
                self.verifier(signer).turn()
            self.world.chain.mine()
        raise AssertionError("it doesn't come to hold")

    def votes(self, case_id: str) -> list[Vote]:
        return [juror.vote for juror in self.jury(case_id).jurors]

    def bond(self, seat: int) -> int:
        return int(self.world.read("registry", "seatOf", self.world.pool_id, seat)["bond"])

    def credits(self, signer: Signer) -> int:
        return int(self.world.read("credits", "balanceOf", signer.address))

    def allotment(self) -> int:
        return self.pool.allotment_wei(self.world.node.address)


def model_folder(folder: Path, weights: Path) -> Path:
    folder.mkdir()
    for name in (CONFIG_FILE, "tokenizer.json"):
        shutil.copyfile(BASE_MODEL / name, folder / name)
    shutil.copyfile(weights, folder / WEIGHTS_FILE)
    return folder


@pytest.fixture(scope="module")
def honest_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("honest") / "model", BASE_MODEL / WEIGHTS_FILE)


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As able, of the same shape, and not the one that the chain names."""
    return model_folder(tmp_path_factory.mktemp("other") / "model", OTHER_WEIGHTS)


@pytest.fixture(scope="module")
def real(
    tmp_path_factory: pytest.TempPathFactory,
    empty_database: bytes,
    portal: anyio.from_thread.BlockingPortal,
    honest_model: Path,
) -> Iterator[RealPool]:
    """One pool for all tests here: each brings a submission of its own."""
    folder, origin = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("origin")
    node = start_node(tmp_path_factory.mktemp("chain"), SystemClock(), block_seconds=0)
    assert node.process is not None
    with node, FileServer(origin, ("127.0.0.1", 0)) as origin_server:
        chain = LocalChain(node.process, deploy_contracts(node.url, UNBONDING_SECONDS))
        (folder / "coordinator.sqlite").write_bytes(empty_database)
        rules = make_testnet_rules(BASE_MODEL).model_copy(update={"groups_per_task": 1})
        config = create_pool(chain, folder, rules, **TERMS)
        config = config.model_copy(
            update={"shardcast_urls": (origin_server.url,), "lease_seconds": TERMS["lease_max"], "groups_per_step": 32}
        )
        world = open_world(chain, config, portal, rules, SystemClock())
        set_up(world, publish(honest_model, origin, world.pool_id, 0).manifest_hash)
        environment = make_testnet_environment(Tokenizer.load(BASE_MODEL))
        with served(world) as url, ExitStack() as ends:
            yield RealPool(world, environment, url, folder, ends)
        world.coordinator.engine.dispose()
        chain.contracts.client.rpc.close()


def set_up(world: World, manifest_hash: str) -> None:
    """Funds, stakes, seats enough for a jury besides those that judge, and version 0."""
    with world.coordinator.writing() as session:
        remember_rules(session, world.rules)
    fund_pool(world, world.chain.creator)
    world.validators += dev_signers(4 + NUM_VALIDATORS + NUM_JURORS_MORE)[4 + NUM_VALIDATORS :]
    join(world)
    world.publish(0, manifest_hash=manifest_hash)


@pytest.fixture
def challenge(real: RealPool, tmp_path: Path, call: Command) -> Callable[..., tuple[int, str, str]]:
    """`proofpool audit challenge`, by somebody who has nothing to do with the pool's work."""
    keys, creator = Keys(real.world, tmp_path), real.world.chain.creator
    real.world.send(creator, "credits", "mint", creator.address, CREDIT)

    def command(submission_id: str, *more: str) -> tuple[int, str, str]:
        kept = ("--evidence", str(tmp_path / "evidence.json"), "--cache", str(tmp_path / "cache"))
        where = ("--coordinator", real.url, *kept)
        return call("audit", "challenge", submission_id, *where, *more, *keys.options(CREATOR))

    return command


def test_a_forgery_that_a_bribed_quorum_accepted_costs_provider_and_seats(
    real: RealPool, other_model: Path, challenge: Any, tmp_path: Path
) -> None:
    world, challenger, case_id = real.world, real.world.chain.creator, real.accept(other_model)
    world.close_epoch()
    before, staked = real.credits(challenger), real.allotment()
    withheld_wei = real.pool.withheld_wei(world.provider.address)
    found = document(challenge(case_id))
    assert found["state"] == "challenged" and found["reason"] in {"toploc_mismatch", "sampling_mismatch"}
    assert case_id in (tmp_path / "evidence.json").read_text()
    bribed = found["implicated_seats"]
    assert bribed and all(real.bond(seat) == SEAT_BOND for seat in bribed)
    assert real.decide(case_id) is CaseState.UPHELD
    assert real.votes(case_id) == [Vote.UPHOLD] * 3
    assert not {juror.seat for juror in real.jury(case_id).jurors} & set(bribed)
    assert [real.bond(seat) for seat in bribed] == [SEAT_BOND - FINE] * len(bribed)
    assert staked - real.allotment() == SLASH
    assert real.credits(challenger) - before == SLASH // 10, "the bounty, beside the bond"
    most_wei = PRICE_WEI * world.rules.max_units
    assert real.pool.withheld_wei(world.provider.address) - withheld_wei == most_wei, "its pay is gone"


def test_honest_work_is_no_forgery_and_who_insists_pays(
    real: RealPool, honest_model: Path, other_model: Path, challenge: Any
) -> None:
    challenger, provider, case_id = real.world.chain.creator, real.world.provider, real.accept(honest_model)
    before, owned, staked = real.credits(challenger), real.credits(provider), real.allotment()
    assert refusal(challenge(case_id)) == (3, ["error", "why", "do"])
    assert real.credits(challenger) == before
    code, _, err = challenge(case_id, "--model", str(other_model))
    assert code == 2 and "another model" in err, "which would have found it forged, and lost the bond"
    assert real.credits(challenger) == before
    found = document(challenge(case_id, "--without-check", "--reason", "toploc_mismatch"))
    assert real.decide(case_id) is CaseState.OVERTURNED
    assert real.votes(case_id) == [Vote.OVERTURN] * 3
    assert [real.bond(seat) for seat in found["implicated_seats"]] == [SEAT_BOND]
    assert (real.allotment(), before - real.credits(challenger)) == (staked, CREDIT)
    assert real.credits(provider) - owned == CREDIT // 2


def test_a_file_that_is_withheld_condemns_nobody(real: RealPool, other_model: Path, challenge: Any) -> None:
    world, case_id = real.world, real.accept(other_model)
    before, staked = real.credits(world.chain.creator), real.allotment()
    found = document(challenge(case_id))
    view = world.client().submission(case_id)
    blob = world.coordinator.blobs.path(view.file_sha256)
    blob.unlink()
    jury = real.seat(case_id)
    jurors = [world.validator(juror.validator) for juror in jury.jurors]
    for signer in jurors:
        real.verifier(signer).turn()
    assert not any(juror.has_committed for juror in real.jury(case_id).jurors), "it may still come"
    world.chain.pass_time(jury.commit_deadline - real.pool.time() - TERMS["jury_period"] // 8)
    assert real.decide(case_id) is CaseState.LAPSED
    assert real.votes(case_id) == [Vote.UNAVAILABLE] * 3
    assert [real.bond(seat) for seat in found["implicated_seats"]] == [SEAT_BOND]
    assert (real.allotment(), real.credits(world.chain.creator)) == (staked, before)
