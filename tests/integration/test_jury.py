"""Juries on a real chain: verifiers seat themselves, vote and end cases that anybody has brought before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.api import SubmissionView
from protocol.chain.cases import CaseState, JuryRecord, Vote
from protocol.chain.pool import ChainPool
from protocol.draw import draw_seats
from protocol.errors import CoordinatorUnreachable
from protocol.merkle.standard import earnings_tree
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer
from testnet.chain.genesis import dev_signers
from tests.integration.conftest import CREDIT, NUM_VALIDATORS, SETTLING, World
from tests.integration.test_appeal import appealed
from tests.integration.test_audit import accuse
from tests.integration.test_challenge import outsider
from tests.integration.test_earnings import attestation, commit, propose
from verifier.history import History, Received
from verifier.juror import Jurors
from verifier.store import open_store
from verifier.takeover import follow

NUM_JURORS_MORE = 4
FINE_WEI, NO_SHOW_WEI = 5 * CREDIT // 10, 5 * CREDIT // 100


@dataclass
class Eyes:
    """Sees the file as a judge would that finds `outcome`, or that can't have it."""

    outcome: Outcome = Outcome.ACCEPT
    is_blind: bool = False
    content_hash: str | None = None
    num_looks: int = 0

    def look_again(self, view: SubmissionView, received: Received) -> Any:
        self.num_looks += 1
        if self.is_blind:
            raise CoordinatorUnreachable("the file isn't served")
        case = SimpleNamespace(content_hash=self.content_hash or view.submission.message.content_hash)
        return SimpleNamespace(outcome=self.outcome, case=case)


@dataclass
class Bench:
    """All validators' verifiers, as far as juries go."""

    world: World
    folder: Path
    eyes: Eyes = field(default_factory=Eyes)
    away: set[str] = field(default_factory=set)

    def jurors(self, signer: Signer) -> Jurors:
        """A process on the validator's folder: calling this again is a restart."""
        db = open_store(self.folder / signer.address)
        history, pool = History(db), self.pool(signer)
        follow(history, pool, self.world.client().entries)
        judge: Any = self.eyes
        return Jurors(db, signer.address, pool, self.world.client(), history, judge)

    def pool(self, signer: Signer | None = None) -> ChainPool:
        lane = None if signer is None else self.world.chain.lane(signer)
        return ChainPool(self.world.contracts, self.world.pool_id, lane=lane)

    def turn(self) -> None:
        for signer in self.world.validators:
            if signer.address not in self.away:
                self.jurors(signer).turn()
        self.world.chain.mine()

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(8):
            if holds():
                return
            self.turn()
        raise AssertionError("it doesn't come to hold")

    def seat(self, case_id: str) -> None:
        """One verifier calls the jury; nobody votes yet."""
        while not self.jury(case_id).is_seated:
            self.jurors(self.world.validators[0]).turn()
            self.world.chain.mine()

    def state(self, case_id: str) -> CaseState:
        return self.pool().case_of(case_id).state

    def jury(self, case_id: str) -> JuryRecord:
        found = self.pool().jury_of(case_id)
        assert found is not None
        return found

    def bond(self, seat: int) -> int:
        return int(self.world.read("registry", "seatOf", self.world.pool_id, seat)["bond"])


@pytest.fixture
def bench(world: World, tmp_path: Path) -> Bench:
    """With validators enough that some have no part in a case."""
    world.send(world.provider, "credits", "faucet", 2 * CREDIT)
    for signer in dev_signers(4 + NUM_VALIDATORS + NUM_JURORS_MORE)[4 + NUM_VALIDATORS :]:
        world.send(signer, "credits", "faucet", 100 * CREDIT)
        world.send(signer, "credits", "approve", world.contracts.addresses.registry, 100 * CREDIT)
        world.send(signer, "registry", "stake", 100 * CREDIT)
        world.send(signer, "registry", "bondSeat", world.pool_id)
        world.validators.append(signer)
    world.close_epoch()
    return Bench(world, tmp_path)


def accused_and_appealed(world: World) -> str:
    submission_id = world.submit()
    world.judge(submission_id, Outcome.SLASH, RejectReason.WRONG_PROMPTS)
    accuse(world, submission_id)
    assert appealed(world, submission_id, world.provider).sent
    return submission_id


def credits_of(world: World, signer: Signer) -> int:
    return int(world.read("credits", "balanceOf", signer.address))


def test_who_was_wrongly_accused_is_acquitted_and_the_accusers_pay(bench: Bench) -> None:
    world = bench.world
    before = credits_of(world, world.provider)
    case_id = accused_and_appealed(world)
    accusers = bench.pool().accusers_of(case_id)
    bench.until(lambda: bench.state(case_id).is_over)
    assert bench.state(case_id) is CaseState.OVERTURNED
    assert {juror.vote for juror in bench.jury(case_id).jurors} == {Vote.OVERTURN}
    assert not {juror.seat for juror in bench.jury(case_id).jurors} & set(accusers)
    assert [bench.bond(seat) for seat in accusers] == [5 * CREDIT - FINE_WEI] * 2
    assert credits_of(world, world.provider) - before == FINE_WEI, "half of two fines, beside the bond"


def test_a_forger_who_appeals_is_slashed_and_his_bond_is_the_jurors(bench: Bench) -> None:
    world, bench.eyes.outcome = bench.world, Outcome.SLASH
    before, staked = credits_of(world, world.provider), bench.pool().allotment_wei(world.node.address)
    case_id = accused_and_appealed(world)
    bench.until(lambda: bench.state(case_id).is_over)
    assert bench.state(case_id) is CaseState.UPHELD
    assert before - credits_of(world, world.provider) == CREDIT
    assert bench.pool().allotment_wei(world.node.address) < staked


def test_an_accepted_forgery_that_an_outsider_challenges_costs_provider_and_seats(bench: Bench, tmp_path: Path) -> None:
    world, bench.eyes.outcome = bench.world, Outcome.SLASH
    case_id, challenger = world.accept(), outsider(world, tmp_path)
    before, staked = credits_of(world, world.chain.creator), bench.pool().allotment_wei(world.node.address)
    accepting = challenger.challenge(case_id).implicated_seats
    bench.until(lambda: bench.state(case_id).is_over)
    assert bench.state(case_id) is CaseState.UPHELD and accepting
    assert [bench.bond(seat) for seat in accepting] == [5 * CREDIT - FINE_WEI] * len(accepting)
    assert bench.pool().allotment_wei(world.node.address) < staked
    assert credits_of(world, world.chain.creator) > before, "the bond is back, with a bounty"


def test_a_jury_that_does_not_show_up_decides_nothing_and_pays_for_that(bench: Bench) -> None:
    world = bench.world
    before = credits_of(world, world.provider)
    case_id = accused_and_appealed(world)
    bench.seat(case_id)
    seats = [juror.seat for juror in bench.jury(case_id).jurors]
    world.chain.pass_time(SETTLING["jury_period"] + 1)
    bench.until(lambda: bench.state(case_id).is_over)
    assert bench.state(case_id) is CaseState.LAPSED
    assert credits_of(world, world.provider) == before
    assert [bench.bond(seat) for seat in seats] == [5 * CREDIT - NO_SHOW_WEI] * len(seats)


def test_the_first_look_goes_back_as_long_as_a_jury_can_matter(bench: Bench) -> None:
    world = bench.world
    case_id = accused_and_appealed(world)
    found, next_block = bench.pool().juries_summoned(None)
    assert [one.case_id for one in found] == [case_id] and next_block == world.contracts.client.head().number + 1
    world.chain.pass_time(2 * SETTLING["jury_period"])
    assert bench.pool().juries_summoned(None)[0] == found, "it may still have to be carried out"
    world.chain.pass_time(2 * SETTLING["jury_period"])
    assert bench.pool().juries_summoned(None)[0] == []
    assert bench.pool().juries_summoned(0)[0] == found


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_summons_that_a_reorg_puts_into_blocks_that_were_looked_at_is_heard(bench: Bench, is_dropped: bool) -> None:
    """Once it comes for the first time, once again after it was dropped and the case closed here."""
    world, rpc = bench.world, bench.world.contracts.client.rpc
    case_id = world.submit()
    world.judge(case_id, Outcome.SLASH, RejectReason.WRONG_PROMPTS)
    accuse(world, case_id)
    snapshot = rpc.call("evm_snapshot")
    if is_dropped:
        assert appealed(world, case_id, world.provider).sent
    world.chain.mine(8)
    bench.turn()
    assert rpc.call("evm_revert", snapshot)
    if is_dropped:
        bench.turn()  # there is no jury: whoever knew the case closes it
    assert appealed(world, case_id, world.provider).sent
    bench.until(lambda: bench.state(case_id).is_over)
    assert bench.state(case_id) is CaseState.OVERTURNED, "all jurors came"


def test_an_end_that_a_reorg_takes_back_is_brought_about_again(bench: Bench) -> None:
    """By verifiers that go on running, and have closed the case."""
    world, rpc = bench.world, bench.world.contracts.client.rpc
    case_id = accused_and_appealed(world)
    running = [bench.jurors(signer) for signer in world.validators]
    snapshots: list[str] = []

    def turn() -> None:
        for jurors in running:
            jurors.turn()
            if bench.jury(case_id).is_complete and not snapshots:  # the next juror may end the case already
                snapshots.append(rpc.call("evm_snapshot"))
        world.chain.mine()

    for _ in range(8):
        turn()
    assert bench.state(case_id) is CaseState.OVERTURNED and all(not jurors.open_cases() for jurors in running)
    assert rpc.call("evm_revert", snapshots[0]) and bench.state(case_id) is CaseState.APPEALED
    for _ in range(2):
        turn()
    assert bench.state(case_id) is CaseState.OVERTURNED
    turn()
    assert all(not jurors.open_cases() for jurors in running)


def test_a_case_that_is_over_is_closed_once(bench: Bench) -> None:
    case_id = accused_and_appealed(bench.world)
    bench.until(lambda: bench.state(case_id).is_over)
    jurors = bench.jurors(bench.world.validators[0])
    with capture_logs() as logs:
        for _ in range(3):
            jurors.turn()
    assert [entry["event"] for entry in logs] == ["case.closed"] and jurors.open_cases() == []


def test_a_restart_commits_once_and_reveals_what_it_kept(bench: Bench) -> None:
    world = bench.world
    case_id = accused_and_appealed(world)
    bench.seat(case_id)
    first = bench.jury(case_id).jurors[0]
    signer = world.validator(first.validator)
    broken = bench.jurors(signer)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    broken._chain.commit_vote = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        broken.turn()
    assert not bench.jury(case_id).jurors[0].has_committed and bench.eyes.num_looks == 1
    bench.eyes.outcome = Outcome.SLASH  # a second look would say something else: what was kept stands
    for _ in range(2):
        bench.jurors(signer).turn()
    assert bench.jury(case_id).jurors[0].has_committed and bench.eyes.num_looks == 1
    bench.until(lambda: bench.jury(case_id).is_complete or bench.state(case_id).is_over)
    assert [juror.vote for juror in bench.jury(case_id).jurors] == [Vote.OVERTURN, Vote.UPHOLD, Vote.UPHOLD]


def test_a_dispute_over_true_earnings_costs_the_disputer(bench: Bench) -> None:
    world, disputer = bench.world, bench.world.chain.creator
    world.accept()
    statement = propose(world)
    commit(world, statement)
    world.send(disputer, "credits", "faucet", CREDIT)
    before = credits_of(world, disputer)
    case_id = disputed(bench, disputer, statement.epoch)
    bench.until(lambda: bench.pool().dispute_of(case_id) is None)
    assert {juror.vote for juror in bench.jury(case_id).jurors} == {Vote.OVERTURN}
    assert [record.root for record in bench.pool().earnings_since(0)] == [statement.root]
    assert credits_of(world, disputer) < before


def test_false_earnings_are_revoked_by_jurors_who_recompute_the_log(bench: Bench) -> None:
    world, disputer = bench.world, bench.world.chain.creator
    world.accept()
    true = propose(world)
    tree = earnings_tree({row.account: row.cumulative_wei + 1 for row in true.accounts})
    false = true.model_copy(update={"root": tree.root, "total_wei": true.total_wei + len(true.accounts)})
    pool, subject = bench.pool(), bench.pool().earnings_id(true.epoch)
    beacon = pool.epoch_beacon(true.epoch)
    assert beacon is not None
    drawn = draw_seats(beacon, subject, 0, pool.seats(), true.epoch, num_seats=pool.record().accept_quorum)
    signed = [
        world.validator(one.seat.validator).sign(attestation(world, false, one.seat.index), world.domain)
        for one in drawn
    ]
    indexes = [one.draw_index for one in drawn]
    coordinator = world.coordinator.signer
    call = (world.pool_id, false.epoch, false.root, false.total_wei, indexes, signed)
    world.send(coordinator, "ledger", "commitEarnings", *call)
    assert [record.root for record in pool.earnings_since(0)] == [false.root]
    world.send(disputer, "credits", "faucet", CREDIT)
    before = credits_of(world, disputer)
    case_id = disputed(bench, disputer, false.epoch)
    bench.until(lambda: bench.pool().dispute_of(case_id) is None)
    assert {juror.vote for juror in bench.jury(case_id).jurors} == {Vote.UPHOLD}
    assert pool.earnings_since(0) == []
    assert credits_of(world, disputer) >= before


def disputed(bench: Bench, disputer: Signer, epoch: int) -> str:
    bench.pool(disputer).dispute_earnings(epoch)
    bench.world.chain.mine()
    return bench.pool().earnings_id(epoch)


@pytest.mark.parametrize("lack", [Eyes(is_blind=True), Eyes(content_hash="0x" + "0d" * 32)], ids=["none", "other"])
def test_evidence_that_is_not_served_is_waited_for_and_then_said(bench: Bench, lack: Eyes) -> None:
    world, bench.eyes = bench.world, lack
    case_id = accused_and_appealed(world)
    bench.seat(case_id)
    bench.turn()
    assert not any(juror.has_committed for juror in bench.jury(case_id).jurors)
    world.chain.pass_time(bench.jury(case_id).commit_deadline - bench.pool().time() - SETTLING["jury_period"] // 10)
    for juror in bench.jury(case_id).jurors:  # they first: the chain's clock goes on
        bench.jurors(world.validator(juror.validator)).turn()
    bench.until(lambda: bench.state(case_id).is_over)
    assert {juror.vote for juror in bench.jury(case_id).jurors} == {Vote.UNAVAILABLE}
    assert bench.state(case_id) is CaseState.LAPSED
