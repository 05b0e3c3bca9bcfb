"""A coordinator that commits a false earnings root: anybody disputes it by the command, and jurors recompute it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator.db.work import TaskRow
from protocol.api import EarningsStatement
from protocol.chain.cases import Vote
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.chain.terms import PriceTerms
from protocol.clock import SystemClock
from protocol.draw import draw_seats
from protocol.errors import NotEligible, NotFound, VerificationFailed
from protocol.merkle.standard import earnings_tree
from tests.integration.conftest import (
    COORDINATOR_BOND_WEI,
    CREDIT,
    PRICE_WEI,
    SETTLING,
    VERIFY_PRICE_WEI,
    World,
)
from tests.integration.served import served
from tests.integration.test_bond import new_pool
from tests.integration.test_earnings import attestation, claim, commit, propose
from tests.integration.test_jury import FINE_WEI, Bench, bench, credits_of
from tests.integration.test_promise_commands import CREATOR, Command, Keys, call, document, keys, refusal
from verifier.audit.court.dispute import Disputer
from verifier.history import History
from verifier.roots import root_faults
from verifier.store import open_store
from verifier.takeover import follow

__all__ = ["bench", "call", "keys"]

NOTICE = 60 + 60 + SETTLING["judge_period"] + SETTLING["challenge_window"] + 1
BOND_SHARE_WEI = COORDINATOR_BOND_WEI // 10


@dataclass(frozen=True)
class Live:
    """A coordinator that answers over HTTP, and an outsider with a challenge bond."""

    bench: Bench
    url: str
    keys: Keys

    @property
    def world(self) -> World:
        return self.bench.world

    def command(self, epoch: int, *more: str) -> tuple[str, ...]:
        return ("audit", "dispute-earnings", str(epoch), "--coordinator", self.url, *more, *self.keys.options(CREATOR))


@pytest.fixture
def live(bench: Bench, keys: Keys) -> Iterator[Live]:
    bench.world.send(bench.world.chain.creator, "credits", "mint", bench.world.chain.creator.address, CREDIT)
    with served(bench.world) as url:
        yield Live(bench, url, keys)


def commit_falsely(bench: Bench, statement: EarningsStatement, more_wei: int = 1) -> tuple[EarningsStatement, int]:
    """The coordinator and a bribed seat commit `more_wei` more for every account: that root, and the seat."""
    world, pool = bench.world, bench.pool()
    tree = earnings_tree({row.account: row.cumulative_wei + more_wei for row in statement.accounts})
    total_wei = statement.total_wei + more_wei * len(statement.accounts)
    false = statement.model_copy(update={"root": tree.root, "total_wei": total_wei})
    beacon, subject = pool.epoch_beacon(false.epoch), pool.earnings_id(false.epoch)
    assert beacon is not None
    (one,) = draw_seats(beacon, subject, 0, pool.seats(), false.epoch, num_seats=1)
    signature = world.validator(one.seat.validator).sign(attestation(world, false, one.seat.index), world.domain)
    call = (world.pool_id, false.epoch, false.root, false.total_wei, [one.draw_index], [signature])
    world.send(world.coordinator.signer, "ledger", "commitEarnings", *call)
    return false, one.seat.index


def coordinator_bond(world: World) -> int:
    return int(world.read("pools", "bondOf", world.pool_id, world.coordinator.signer.address)["amount"])


def test_a_false_root_costs_its_coordinator_and_its_signers_and_the_true_one_is_paid(live: Live, call: Command) -> None:
    world, bench = live.world, live.bench
    world.accept()
    true = propose(world)
    false, bribed = commit_falsely(bench, true)
    before = credits_of(world, world.chain.creator)
    found = document(call(*live.command(false.epoch)))
    assert (found["root"], found["total_wei"]) == (false.root, str(false.total_wei))
    assert true.root in found["faults"][0] and found["named_seats"] == [bribed]
    assert (found["coordinator"], found["bond_wei"]) == (world.coordinator.signer.address, str(CREDIT))
    again = document(call(*live.command(false.epoch)))
    assert (again["faults"], again["named_seats"]) == ([], [bribed]), "it is disputed once"
    bench.until(lambda: bench.pool().dispute_of(found["dispute_id"]) is None)
    jury = bench.jury(found["dispute_id"])
    assert {juror.vote for juror in jury.jurors} == {Vote.UPHOLD}
    assert bribed not in {juror.seat for juror in jury.jurors}
    assert bench.pool().earnings_since(0) == []
    assert bench.bond(bribed) == 5 * CREDIT - FINE_WEI
    assert coordinator_bond(world) == COORDINATOR_BOND_WEI - BOND_SHARE_WEI
    assert credits_of(world, world.chain.creator) - before == CREDIT + FINE_WEI // 2
    assert not world.read("pools", "isLeasing", world.pool_id)
    commit(world, true)
    world.chain.pass_time(1000)
    earned = credits_of(world, world.provider)
    claim(world, true, world.provider.address)
    assert credits_of(world, world.provider) > earned


def test_a_true_root_is_not_disputed_unless_one_insists(live: Live, call: Command) -> None:
    world, bench = live.world, live.bench
    world.accept()
    true = propose(world)
    assert refusal(call(*live.command(true.epoch))) == (1, ["error", "why", "do"]), "it isn't on chain yet"
    code, _, complaint = call(*live.command(true.epoch, "--without-check", "--pool", "99"))
    assert (code, "there is no such pool on this chain" in complaint) == (5, True)
    commit(world, true)
    before = credits_of(world, world.chain.creator)
    assert refusal(call(*live.command(true.epoch))) == (3, ["error", "why", "do"])
    assert credits_of(world, world.chain.creator) == before
    found = document(call(*live.command(true.epoch, "--without-check", "--pool", str(world.pool_id))))
    assert found["named_seats"] and not found["faults"]
    assert [record.claimable_time for record in bench.pool().earnings_since(0)] == [None], "the dispute holds it"
    bench.until(lambda: bench.pool().dispute_of(found["dispute_id"]) is None)
    assert before - credits_of(world, world.chain.creator) == CREDIT
    (record,) = bench.pool().earnings_since(0)
    assert record.root == true.root and record.claimable_time is not None


def test_a_dispute_is_refused_where_the_jury_would(live: Live) -> None:
    world, creator = live.world, live.world.chain.creator
    world.accept()
    first = propose(world)
    commit(world, first)
    world.accept()
    second, _ = commit_falsely(live.bench, propose(world))
    lane = Lane(world.contracts.client, creator, SystemClock())
    disputer = Disputer(world.contracts, lane, world.pool_id, world.client())
    with pytest.raises(NotFound, match="no earnings"):
        disputer.dispute(second.epoch + 1)
    with pytest.raises(VerificationFailed, match="finds the root true"):
        disputer.dispute(first.epoch)
    balance = credits_of(world, creator)
    world.send(creator, "credits", "transfer", world.trainer.address, balance - CREDIT + 1)
    with pytest.raises(NotEligible, match="takes a bond") as poor:
        disputer.dispute(second.epoch)
    assert f"{CREDIT - 1} of {CREDIT} wei" in poor.value.why
    world.send(world.trainer, "credits", "transfer", creator.address, balance - CREDIT + 1)
    world.send(creator, "credits", "mint", creator.address, CREDIT)
    assert disputer.dispute(second.epoch).faults
    with pytest.raises(NotEligible, match="another root of the pool"):
        disputer.dispute(first.epoch)


def test_what_is_claimable_is_too_late_to_dispute(live: Live) -> None:
    world = live.world
    world.accept()
    false, _ = commit_falsely(live.bench, propose(world))
    world.chain.pass_time(1000)
    lane = Lane(world.contracts.client, world.chain.creator, SystemClock())
    with pytest.raises(NotEligible, match="too late"):
        Disputer(world.contracts, lane, world.pool_id, world.client()).dispute(false.epoch)


def announce(world: World, price_wei: int, pool_id: int | None = None) -> None:
    """New terms, and the time until they are in force."""
    terms = (price_wei, VERIFY_PRICE_WEI, world.rules.rules_hash)
    world.send(world.chain.creator, "pools", "announceTerms", pool_id or world.pool_id, *terms)
    world.chain.pass_time(NOTICE)


def test_prices_are_those_that_the_chain_recorded_for_this_pool(world: World) -> None:
    pool, prices = ChainPool(world.contracts, world.pool_id), [PRICE_WEI, PRICE_WEI // 2, PRICE_WEI // 3]
    assert pool.terms_since(0) == [PriceTerms(0, PRICE_WEI, VERIFY_PRICE_WEI)]
    announce(world, prices[1])
    second_time = pool.time()
    announce(world, 7, new_pool(world))
    announce(world, prices[2])
    assert [terms.price_wei for terms in pool.terms_since(pool.time())] == prices[2:]
    assert [terms.price_wei for terms in pool.terms_since(second_time)] == prices[1:]
    assert [terms.price_wei for terms in pool.terms_since(0)] == prices
    assert [terms.price_wei for terms in pool.terms_since(second_time)] == prices[1:], "from what was looked up"


@pytest.mark.parametrize("is_honest", [True, False])
def test_a_root_that_pays_a_price_of_before_is_false(world: World, tmp_path: Path, is_honest: bool) -> None:
    world.accept()
    world.close_epoch()
    announce(world, PRICE_WEI // 2)
    for _ in range(3):  # what comes in now can't have been leased before
        world.close_epoch()
        world.chain.pass_time(60)
    submission_id = world.submit()
    if not is_honest:
        with world.coordinator.writing() as session:
            task_id = world.client().submission(submission_id).task.message.id(world.domain)
            session.get_one(TaskRow, task_id).price_wei = PRICE_WEI
    world.judge(submission_id)
    statement = propose(world)
    commit(world, statement)
    history, pool = History(open_store(tmp_path)), ChainPool(world.contracts, world.pool_id)
    follow(history, pool, world.client().entries)
    faults = root_faults(statement.epoch, statement.root, statement.total_wei, history, pool)
    assert (faults == []) is is_honest
    assert is_honest or f"the pool's terms were [{PRICE_WEI // 2}]" in faults[0]
