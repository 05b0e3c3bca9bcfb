"""What becomes of people before the Court, with real keys, on a real chain: who runs, who is framed, who wants slashes.

Juries, appeals, challenges and disputes have files of their own; docs/security.md lists all stories.
"""

from __future__ import annotations

import pytest

from coordinator.indexer import index_chain
from coordinator.versions import announce_weights
from protocol.chain.cases import CaseState, Vote
from protocol.errors import ProofpoolError, TransactionReverted
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer
from protocol.wire import NodeAuthorization, Signed, WeightsRelease
from tests.integration.conftest import CREDIT, PRICE_WEI, SETTLING, World, number_hash
from tests.integration.test_audit import accuse
from tests.integration.test_earnings import claim, commit, propose
from tests.integration.test_jury import Bench, Eyes, accused_and_appealed, bench, credits_of

__all__ = ["bench"]

UNBONDING_SECONDS = 60 + 600
REFUND_SECONDS = 60 + 60 + 600 + 2 * sum(SETTLING.values()) + 1
THREE_MINDS = (Eyes(Outcome.SLASH), Eyes(), Eyes(is_blind=True))
NUM_NODES = 10
TENTH = 10 * CREDIT
"""Of a provider's stake: what each of its ten nodes stands for."""


def condemned(world: World, node: Signer | None = None) -> str:
    """A submission that two drawn seats condemn, and their case."""
    submission_id = world.submit(node=node)
    world.judge(submission_id, Outcome.SLASH, RejectReason.TOPLOC_MISMATCH)
    accuse(world, submission_id)
    return submission_id


def enforce(world: World, submission_id: str) -> None:
    world.chain.pass_time(SETTLING["appeal_period"] + 1)
    world.send(world.provider, "court", "enforce", submission_id)


def test_a_provider_who_unbonds_and_runs_is_slashed_all_the_same(bench: Bench) -> None:
    world, registry, node = bench.world, "registry", bench.world.node.address
    submission_id = world.submit()
    world.send(world.provider, registry, "deallot", node, world.pool_id, 50 * CREDIT)
    world.send(world.provider, registry, "removeNode", node)
    with pytest.raises(TransactionReverted) as early:
        world.send(world.provider, registry, "release", node, world.pool_id)
    assert early.value.name == "NotYet"
    index_chain(world.coordinator)
    world.judge(submission_id, Outcome.SLASH, RejectReason.TOPLOC_MISMATCH)
    accuse(world, submission_id)
    supply = world.read("credits", "totalSupply")
    enforce(world, submission_id)
    assert supply - world.read("credits", "totalSupply") == 45 * CREDIT // 10, "ten percent, less the bounty"
    world.chain.pass_time(UNBONDING_SECONDS)
    world.send(world.provider, registry, "release", node, world.pool_id)
    left = 100 * CREDIT - 50 * CREDIT // 10
    with pytest.raises(TransactionReverted):
        world.send(world.provider, registry, "withdraw", left + 1)
    world.send(world.provider, registry, "withdraw", left)


def add_nodes(world: World, count: int) -> list[Signer]:
    """More nodes of the one provider, each with an allotment of its own."""
    registry = world.contracts.addresses.registry
    world.send(world.provider, "credits", "faucet", 100 * CREDIT)
    world.send(world.provider, "credits", "approve", registry, 100 * CREDIT)
    world.send(world.provider, "registry", "stake", 100 * CREDIT)
    nodes = [Signer(bytes(31) + bytes([0x70 + number])) for number in range(count)]
    for node in nodes:
        message = NodeAuthorization(provider=world.provider.address, node=node.address, nonce=0, deadline=2**40)
        signature = node.sign(message, world.contracts.registry_domain)
        world.send(world.provider, "registry", "addNode", node.address, 0, 2**40, signature)
        world.send(world.provider, "registry", "allot", node.address, world.pool_id, TENTH)
    index_chain(world.coordinator)
    return nodes


def test_one_cheating_node_of_ten_costs_its_share_and_nine_keep_earning(bench: Bench) -> None:
    world = bench.world
    nodes = add_nodes(world, NUM_NODES)
    cheat, honest = nodes[0], nodes[1:]
    case_id = condemned(world, cheat)
    enforce(world, case_id)
    index_chain(world.coordinator)
    assert bench.state(case_id) is CaseState.UPHELD
    assert bench.pool().allotment_wei(cheat.address) == TENTH - TENTH // 10
    assert {bench.pool().allotment_wei(node.address) for node in honest} == {TENTH}
    with pytest.raises(ProofpoolError):
        world.lease(node=cheat)  # less than the pool's least allotment
    accepted = [world.accept(node) for node in honest]
    statement = propose(world)
    commit(world, statement)
    world.chain.pass_time(1000)
    before = credits_of(world, world.provider)
    claim(world, statement, world.provider.address)
    units = sum(world.client().submission(submission_id).num_units for submission_id in accepted)
    assert credits_of(world, world.provider) - before == units * PRICE_WEI


def test_a_creator_who_closes_with_work_unpaid_pays_it_first(world: World) -> None:
    creator = world.chain.creator
    submission_id = world.accept()
    funds = world.read("pools", "funds", world.pool_id)
    world.send(creator, "pools", "close", world.pool_id)
    with pytest.raises(TransactionReverted) as early:
        world.send(creator, "pools", "refund", world.pool_id)
    assert early.value.name == "RefundNotYet"
    index_chain(world.coordinator)
    with pytest.raises(ProofpoolError):
        world.lease()
    statement = propose(world)
    commit(world, statement)
    world.chain.pass_time(REFUND_SECONDS)
    before = credits_of(world, creator)
    world.send(creator, "pools", "refund", world.pool_id)
    assert credits_of(world, creator) - before == funds - statement.total_wei
    earned = credits_of(world, world.provider)
    claim(world, statement, world.provider.address)
    paid = world.client().submission(submission_id).num_units * PRICE_WEI
    assert credits_of(world, world.provider) - earned == paid


def test_a_creator_holds_no_seat_and_its_sybils_gain_less_than_is_burned(bench: Bench) -> None:
    world, creator = bench.world, bench.world.chain.creator
    with pytest.raises(TransactionReverted) as refused:
        world.send(creator, "registry", "bondSeat", world.pool_id)
    assert refused.value.name == "RoleMayNotJudge"
    wealth = sum(credits_of(world, one) for one in (creator, *world.validators))
    supply, staked = world.read("credits", "totalSupply"), bench.pool().allotment_wei(world.node.address)
    case_id = condemned(world)  # honest work, by two seats that are the creator's; nobody appeals
    enforce(world, case_id)
    slashed = staked - bench.pool().allotment_wei(world.node.address)
    gained = sum(credits_of(world, one) for one in (creator, *world.validators)) - wealth
    assert slashed == 5 * CREDIT and gained <= slashed // 10
    assert supply - world.read("credits", "totalSupply") == slashed - gained


def test_a_jury_that_is_of_three_minds_decides_nothing_and_nobody_pays(bench: Bench) -> None:
    world = bench.world
    before = credits_of(world, world.provider)
    case_id = accused_and_appealed(world)
    bench.seat(case_id)
    jury = bench.jury(case_id)
    for juror, bench.eyes in zip(jury.jurors, THREE_MINDS, strict=True):
        bench.jurors(world.validator(juror.validator)).turn()
    world.chain.pass_time(jury.commit_deadline - bench.pool().time() - SETTLING["jury_period"] // 10)
    bench.jurors(world.validator(jury.jurors[2].validator)).turn()  # the blind one waits no longer
    bench.until(lambda: bench.state(case_id).is_over)
    assert {juror.vote for juror in bench.jury(case_id).jurors} == {Vote.UPHOLD, Vote.OVERTURN, Vote.UNAVAILABLE}
    assert bench.state(case_id) is CaseState.LAPSED
    assert credits_of(world, world.provider) == before, "the bond is back"
    seats = [*(juror.seat for juror in jury.jurors), *bench.pool().accusers_of(case_id)]
    assert {bench.bond(seat) for seat in seats} == {5 * CREDIT}


def test_weights_that_are_published_again_reach_nobody(world: World) -> None:
    other = number_hash(99)
    with pytest.raises(TransactionReverted) as refused:
        world.send(world.trainer, "ledger", "publishWeights", world.pool_id, 0, other)
    assert refused.value.name == "VersionOutOfOrder"
    again = WeightsRelease(pool_id=world.pool_id, policy_version=0, manifest_hash=other)
    with pytest.raises(ProofpoolError):
        announce_weights(world.coordinator, Signed[WeightsRelease].by(world.trainer, again, world.domain))
    assert world.client().weights(0).release.message.manifest_hash == number_hash(0)
