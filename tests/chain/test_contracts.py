"""Our contracts through the client: what Python computes is what the chain checks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from contracts.artifacts import load
from contracts.deployment import Parameters, deploy
from coordinator.bond import complete_bond
from protocol.api import ContractAddresses
from protocol.canonical import from_hex0x
from protocol.chain.cases import CaseState
from protocol.chain.client import ChainClient
from protocol.chain.contracts import NAMES, Contracts, Read
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool, LogHead
from protocol.chain.rpc import JsonRpc
from protocol.clock import SystemClock
from protocol.draw import drawn_seats, raw_draw
from protocol.errors import TransactionReverted, UsageError, WrongChain
from protocol.merkle.history import MemoryLog, consistency_proof, event_leaf_hash, inclusion_proof
from protocol.reasons import SLASHABLE_MASK
from protocol.signing import Signer
from protocol.wire import ZERO_ADDRESS, ZERO_HASH, NodeAuthorization
from testnet.chain.genesis import dev_signers
from testnet.chain.process import NodeProcess

CREDIT = 10**18
SALT = "0x" + "5a" * 32
SUBMISSION = "0x" + "5b" * 32
OPERATOR, COORDINATOR, TRAINER, *VALIDATORS = dev_signers(8)

CONFIG = {
    "model_hash": "0x" + "01" * 32,
    "environment_hash": "0x" + "02" * 32,
    "rules_hash": "0x" + "03" * 32,
    "checkpoint_key": ZERO_HASH,
    "slashable_mask": SLASHABLE_MASK,
    "price": CREDIT // 1_000,
    "verify_price": CREDIT // 10_000,
    "min_allotment": 50 * CREDIT,
    "seat_bond": 50 * CREDIT,
    "appeal_bond": 5 * CREDIT,
    "challenge_bond": 5 * CREDIT,
    "bounty_cap": 10 * CREDIT,
    "coordinator_bond": 20 * CREDIT,
    "epoch_max": 30,
    "judge_period": 60,
    "challenge_window": 15,
    "appeal_period": 15,
    "jury_period": 60,
    "retention": 240,
    "lease_max": 60,
    "coordinator_timeout": 120,
    "accept_quorum": 1,
    "slash_quorum": 2,
    "jury_size": 3,
    "draw_limit": 8,
    "first_slash_bps": 1_000,
    "later_slash_bps": 10_000,
    "bounty_bps": 1_000,
    "reaudit_bps": 1_000,
    "max_async": 2,
    "max_units": 4096,
    "coordinator": COORDINATOR.address,
    "trainer": TRAINER.address,
    "confirmations": 1,
    "token": ZERO_ADDRESS,
}


@dataclass(frozen=True)
class Site:
    """A deployment with one pool of four validators' seats."""

    contracts: Contracts
    pool: ChainPool

    def lane(self, signer: Signer) -> Lane:
        return Lane(self.contracts.client, signer, SystemClock())

    def send(self, signer: Signer, contract: str, function: str, *arguments: Any) -> Any:
        return self.contracts.send(self.lane(signer), contract, function, *arguments)

    def commit(self, epoch: int, log: MemoryLog, old_size: int) -> Any:
        proof = consistency_proof(log, old_size, log.size)
        return self.send(COORDINATOR, "ledger", "commitEpoch", 1, epoch, log.size, log.root, proof)


@pytest.fixture(scope="module")
def deployed(node: NodeProcess) -> Iterator[Site]:
    site = deploy_pool(node.url)
    yield site
    site.contracts.client.rpc.close()


@pytest.fixture
def site(deployed: Site) -> Iterator[Site]:
    """The deployment as it was set up, whatever other tests did to it."""
    snapshot = deployed.contracts.client.rpc.call("evm_snapshot")
    yield deployed
    deployed.contracts.client.rpc.call("evm_revert", snapshot)


def deploy_pool(url: str) -> Site:
    client = ChainClient(JsonRpc(url), 31337)
    lane = Lane(client, OPERATOR, SystemClock())

    def create(code: bytes) -> str:
        address = lane.send(None, code).contract_address
        assert address is not None
        return address

    nonce = client.transaction_count(OPERATOR.address)
    at = deploy(create, OPERATOR.address, nonce, Parameters(OPERATOR.address, unbonding_seconds=240, salt=SALT))
    client.rpc.close()
    contracts = Contracts.connect(url, at.ledger, SystemClock(), chain_id=31337)
    site = Site(contracts, ChainPool(contracts, 1))
    site.send(OPERATOR, "pools", "createPool", CONFIG)
    site.send(OPERATOR, "credits", "mint", COORDINATOR.address, CONFIG["coordinator_bond"])
    complete_bond(contracts, 1, COORDINATOR)
    for validator in VALIDATORS:
        site.send(OPERATOR, "credits", "mint", validator.address, 100 * CREDIT)
        site.send(validator, "credits", "approve", at.registry, 100 * CREDIT)
        site.send(validator, "registry", "stake", 100 * CREDIT)
        for _ in range(2):
            site.send(validator, "registry", "bondSeat", 1)
    return site


def make_log(size: int) -> MemoryLog:
    return MemoryLog(event_leaf_hash(SUBMISSION, f'{{"index":{i}}}'.encode()) for i in range(size))


def test_a_deployment_is_found_from_its_ledger(site: Site) -> None:
    assert len({site.contracts.address(name) for name in NAMES}) == 6
    assert site.contracts.salt == SALT
    assert site.contracts.read("ledger", "domainSeparator") == "0x" + site.contracts.domain.separator.hex()
    assert site.contracts.read("registry", "domainSeparator") == "0x" + site.contracts.registry_domain.separator.hex()


def test_another_chain_or_other_code_is_refused(site: Site) -> None:
    url, addresses = site.contracts.client.rpc.url, site.contracts.addresses
    with pytest.raises(WrongChain, match="another chain"):
        Contracts.connect(url, addresses.ledger, SystemClock(), chain_id=1)
    for other in (addresses.registry, OPERATOR.address):
        with pytest.raises(WrongChain, match="the code at the ledger's address"):
            Contracts.connect(url, other, SystemClock())
    swapped = ContractAddresses(**(addresses.model_dump() | {"court": addresses.credits}))
    with pytest.raises(WrongChain, match="the code at the court's address"):
        Contracts(site.contracts.client, swapped, SALT).check_code()


def test_the_artifacts_are_what_is_on_the_chain(site: Site) -> None:
    code = site.contracts.client.code(site.contracts.addresses.pools)
    assert load("Pools").matches(code)
    assert not load("Pools").matches(code[:-1] + b"\0")


def test_a_pools_record_is_its_config(site: Site) -> None:
    record = site.pool.record()
    assert (record.coordinator, record.trainer) == (COORDINATOR.address, TRAINER.address)
    assert (record.accept_quorum, record.slash_quorum, record.draw_limit) == (1, 2, 8)
    assert record.rules_hashes == {CONFIG["rules_hash"]}
    assert site.contracts.read("pools", "isLeasing", 1)
    assert record.accuse_seconds == CONFIG["judge_period"] + CONFIG["challenge_window"]
    site.send(OPERATOR, "pools", "announceTerms", 1, 5, 6, "0x" + "04" * 32)
    assert site.pool.record().rules_hashes == {CONFIG["rules_hash"], "0x" + "04" * 32}


def test_a_pools_jury_terms_are_its_config(site: Site) -> None:
    terms = site.pool.jury_terms()
    assert (terms.appeal_bond_wei, terms.challenge_bond_wei) == (5 * CREDIT, 5 * CREDIT)
    assert (terms.seat_bond_wei, terms.first_slash_bps) == (50 * CREDIT, 1_000)
    assert (terms.jury_seconds, terms.jury_size) == (60, 3)


def test_several_views_are_asked_at_once(site: Site) -> None:
    answers = site.contracts.read_all([Read("pools", "numPools"), Read("registry", "numSeats", (1,))])
    assert answers == [1, 2 * len(VALIDATORS)]
    with pytest.raises(TransactionReverted, match="NoSuchEpoch"):
        site.contracts.read_all([Read("pools", "numPools"), Read("ledger", "epochOf", (1, 0))])


def test_seats_are_drawn_as_the_registry_draws_them(site: Site) -> None:
    seats = site.pool.seats()
    assert [seat.validator for seat in seats] == [v.address for v in VALIDATORS for _ in range(2)]
    for beacon in ("0x" + f"{i:064x}" for i in range(5)):
        expected = [raw_draw(beacon, SUBMISSION, 1, i, len(seats)) for i in range(4)]
        reads = [Read("registry", "drawSeat", (1, beacon, SUBMISSION, 1, i, 0)) for i in range(4)]
        assert site.contracts.read_all(reads) == expected


@pytest.mark.parametrize("excluded", [[], [VALIDATORS[1].address], [VALIDATORS[3].address, VALIDATORS[0].address]])
def test_the_registry_accepts_exactly_the_drawn_seats(site: Site, excluded: list[str]) -> None:
    seats = site.pool.seats()
    for beacon in ("0x" + f"{i:064x}" for i in range(3)):
        drawn = list(drawn_seats(beacon, SUBMISSION, 0, seats, 0, excluded))
        draw: dict[str, Any] = {"pool_id": 1, "epoch": 0, "beacon": beacon, "id": SUBMISSION, "round": 0, "limit": 8}
        draw["excluded"] = excluded
        indexes = [found.draw_index for found in drawn]
        answer = site.contracts.read("registry", "drawnSeats", draw, indexes)
        assert answer == (tuple(d.seat.index for d in drawn), tuple(d.seat.validator for d in drawn))
        skipped = sorted(set(range(indexes[-1])) - set(indexes))
        for index in skipped:
            with pytest.raises(TransactionReverted, match="NotDrawn"):
                site.contracts.read("registry", "drawnSeats", draw, [index])


def test_a_seat_bonded_later_shifts_no_earlier_draw(site: Site) -> None:
    site.commit(0, make_log(1), 0)
    newcomer = dev_signers(9)[8]
    site.send(OPERATOR, "credits", "mint", newcomer.address, 50 * CREDIT)
    site.send(newcomer, "credits", "approve", site.contracts.addresses.registry, 50 * CREDIT)
    site.send(newcomer, "registry", "stake", 50 * CREDIT)
    site.send(newcomer, "registry", "bondSeat", 1)
    seats = site.pool.seats()
    assert seats[-1].active_from_epoch == 3
    for epoch in (0, 2, 3):
        drawn = next(drawn_seats(SUBMISSION, SUBMISSION, 0, seats, epoch))
        draw: dict[str, Any] = {
            "pool_id": 1,
            "epoch": epoch,
            "beacon": SUBMISSION,
            "id": SUBMISSION,
            "round": 0,
            "limit": 8,
        }
        draw["excluded"] = []
        answer = site.contracts.read("registry", "drawnSeats", draw, [drawn.draw_index])
        assert answer == ((drawn.seat.index,), (drawn.seat.validator,))


def test_epochs_extend_the_log_and_nothing_else(site: Site) -> None:
    log, sizes = make_log(0), [1, 2, 3, 7, 8, 13, 40]
    for epoch, size in enumerate(sizes):
        old_size = log.size
        for leaf in make_log(size).read([(0, i) for i in range(old_size, size)]):  # type: ignore[list-item]
            log.append(leaf)
        if epoch:
            with pytest.raises(TransactionReverted, match="LogInconsistent"):
                site.send(COORDINATOR, "ledger", "commitEpoch", 1, epoch, size, log.root, [ZERO_HASH])
        site.commit(epoch, log, old_size)
    assert site.pool.num_epochs() == len(sizes)
    heads = site.pool.heads(0)
    assert [head.size for head in heads] == sizes
    assert heads[-1] == LogHead(6, 40, log.root)


def test_only_the_coordinator_commits_and_in_order(site: Site) -> None:
    log = make_log(3)
    with pytest.raises(TransactionReverted, match="NotCoordinator"):
        site.send(OPERATOR, "ledger", "commitEpoch", 1, 0, 3, log.root, [])
    with pytest.raises(TransactionReverted, match="EpochOutOfOrder"):
        site.commit(1, log, 0)


def test_inclusion_is_checked_on_chain_as_here(site: Site) -> None:
    log = make_log(11)
    site.commit(0, log, 0)
    for index in range(11):
        leaf, proof = log.read([(0, index)])[0], inclusion_proof(log, index, 11)  # type: ignore[list-item]
        assert site.contracts.read("ledger", "verifySubmission", 1, 0, index, leaf, proof)
        assert not site.contracts.read("ledger", "verifySubmission", 1, 0, index, leaf, proof[:-1])
        assert not site.contracts.read("ledger", "verifySubmission", 1, 0, (index + 1) % 11, leaf, proof)
        assert not site.contracts.read("ledger", "verifySubmission", 1, 0, index, log.root, proof)


def test_a_beacon_is_there_once_it_is_sealed(site: Site) -> None:
    site.commit(0, make_log(1), 0)
    assert site.pool.epoch_beacon(0) is None
    assert site.pool.epoch_beacon(1) is None
    for _ in range(3):
        site.contracts.client.rpc.call("evm_mine")
    receipt = site.send(OPERATOR, "ledger", "sealEpoch", 1, 0)
    event = site.contracts.events(receipt)[0]
    block = site.contracts.client.block(event.arguments["beacon_block"])
    assert block is not None
    assert (event.contract, event.name) == ("ledger", "EpochSealed")
    assert site.pool.epoch_beacon(0) == event.arguments["beacon_hash"] == block.block_hash


def test_weights_are_published_once_and_in_order(site: Site) -> None:
    pool = ChainPool(site.contracts, 1, lane=site.lane(TRAINER))
    assert (pool.num_versions(), pool.manifest_hash(0)) == (0, None)
    pool.publish_weights(0, SUBMISSION)
    assert (pool.num_versions(), pool.manifest_hash(0)) == (1, SUBMISSION)
    assert pool.version(0).beacon_hash is None
    assert pool.version(0).beacon_block == site.contracts.client.head().number + 2
    with pytest.raises(TransactionReverted, match="VersionOutOfOrder"):
        pool.publish_weights(0, SUBMISSION)
    with pytest.raises(TransactionReverted, match="NotTrainer"):
        ChainPool(site.contracts, 1, lane=site.lane(OPERATOR)).publish_weights(1, SUBMISSION)


def test_a_node_is_known_by_its_provider(site: Site, make_signer: Callable[[int], Signer]) -> None:
    node, provider = make_signer(77), VALIDATORS[0]
    now = site.contracts.client.head().timestamp
    consent = NodeAuthorization(provider=provider.address, node=node.address, nonce=0, deadline=now + 600)
    signature = node.sign(consent, site.contracts.registry_domain)
    assert site.pool.provider_of(node.address) == ZERO_ADDRESS
    site.send(provider, "registry", "addNode", node.address, 0, now + 600, signature)
    assert site.pool.provider_of(node.address) == provider.address
    assert site.pool.allotment_wei(node.address) == 0


def test_what_is_not_confirmed_is_not_read(site: Site) -> None:
    patient = ChainPool(site.contracts, 1, confirmations=3)
    site.commit(0, make_log(1), 0)
    assert (site.pool.num_epochs(), patient.num_epochs()) == (1, 0)
    for _ in range(2):
        site.contracts.client.rpc.call("evm_mine")
    assert patient.num_epochs() == 1


def test_a_case_that_nobody_opened_is_none(site: Site) -> None:
    case = site.pool.case_of(SUBMISSION)
    assert case.state is CaseState.NONE and case.can_be_accused
    assert site.pool.jury_of(SUBMISSION) is None


def test_an_account_of_which_nothing_is_known_is_empty(site: Site) -> None:
    assert site.pool.earnings_since(0) == []
    assert (site.pool.claimed_wei(SUBMISSION[:42]), site.pool.withheld_wei(SUBMISSION[:42])) == (0, 0)


def test_a_process_without_an_account_sends_nothing(site: Site) -> None:
    with pytest.raises(UsageError, match="no account"):
        site.pool.enforce(SUBMISSION)


def test_logs_are_told_apart_by_contract(site: Site) -> None:
    receipt = site.commit(0, make_log(2), 0)
    event = site.contracts.decode(receipt.logs[0])
    assert event is not None
    assert (event.contract, event.name, event.arguments["size"]) == ("ledger", "EpochCommitted", 2)
    assert site.contracts.decode(replace(receipt.logs[0], address=ZERO_ADDRESS)) is None
    found = list(site.contracts.client.logs(site.contracts.event_addresses, receipt.block_number, receipt.block_number))
    assert found == list(receipt.logs)
    assert from_hex0x(found[0].transaction_hash)
