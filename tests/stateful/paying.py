"""Rules about money: funds, earnings, claims, and the end of a pool."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from sqlalchemy import select

from coordinator.db.chain import Earnings, Seat
from coordinator.earnings import propose_earnings
from coordinator.sender import send_outbox
from protocol.merkle.standard import earnings_tree
from protocol.wire import EarningsAttestation, Signed
from tests.integration.conftest import CREDIT, PRICE_WEI, VERIFY_PRICE_WEI, World
from tests.stateful.play import Play, pick
from tests.stateful.staking import amounts, numbers


class PayingRules(RuleBasedStateMachine):
    """What is earned, paid and given back."""

    play: Play

    @rule(amount=amounts)
    def fund(self, amount: int) -> None:
        world = self.play.world
        self.play.send("fund", world.chain.creator, "pools", "fund", world.pool_id, amount)

    @rule()
    def state_earnings(self) -> None:
        """A statement, if one is due, signed by every seat and committed."""
        propose_earnings(self.play.world.coordinator)
        statement = self._newest()
        if statement is None or statement.transaction_hash is not None:
            return
        self.play.attempt("attest", lambda: attest_all(self.play.world, statement))
        self.play.world.clock.seconds += 20
        for _ in range(2):
            send_outbox(self.play.world.coordinator)
        self.play.world.mine()

    @rule(number=numbers)
    def claim(self, number: int) -> None:
        """Anybody's share of any statement."""
        with self.play.world.coordinator.reading() as session:
            statement = pick(session.scalars(select(Earnings).order_by(Earnings.epoch)).all(), number)
        if statement is None:
            return
        totals = {account: int(amount) for account, amount in statement.accounts}
        place = number % len(totals)
        account = sorted(totals)[place]
        world, proof = self.play.world, earnings_tree(totals).proof(place)
        claim = (world.pool_id, statement.epoch, account, totals[account], proof)
        self.play.send("claim", world.trainer, "ledger", "claim", *claim)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        world = self.play.world
        self.play.send("pause", world.chain.creator, "pools", "setPaused", world.pool_id, paused)

    @rule(more=st.integers(0, 2))
    def announce_terms(self, more: int) -> None:
        world, rules_hash = self.play.world, self.play.world.rules.rules_hash
        terms = (world.pool_id, PRICE_WEI + more, VERIFY_PRICE_WEI + more, rules_hash)
        self.play.send("announce_terms", world.chain.creator, "pools", "announceTerms", *terms)

    @rule(number=numbers)
    def close_pool(self, number: int) -> None:
        """One time in four: a closed pool leaves little to do."""
        if number % 4 == 0:
            world = self.play.world
            self.play.send("close_pool", world.chain.creator, "pools", "close", world.pool_id)

    @rule()
    def refund(self) -> None:
        self.play.send("refund", self.play.world.trainer, "pools", "refund", self.play.world.pool_id)

    @rule()
    def bond_coordinator(self) -> None:
        world = self.play.world
        call = ("pools", "bondCoordinator", world.pool_id, CREDIT)
        self.play.send("bond_coordinator", world.coordinator.signer, *call)

    @rule()
    def unbond_coordinator(self) -> None:
        world = self.play.world
        self.play.send("unbond_coordinator", world.coordinator.signer, "pools", "unbondCoordinator", world.pool_id)

    def _newest(self) -> Earnings | None:
        with self.play.world.coordinator.reading() as session:
            return session.scalar(select(Earnings).order_by(Earnings.epoch.desc()).limit(1))


def attest_all(world: World, statement: Earnings) -> None:
    """Every seat's signature under a statement."""
    with world.coordinator.reading() as session:
        seats = session.scalars(select(Seat).order_by(Seat.seat)).all()
    for seat in seats:
        message = EarningsAttestation(
            pool_id=world.pool_id,
            epoch=statement.epoch,
            root=statement.root,
            total_wei=statement.total_wei,
            seat=seat.seat,
        )
        signed = Signed[EarningsAttestation].by(world.validator(seat.validator), message, world.domain)
        world.client().attest_earnings(signed)
