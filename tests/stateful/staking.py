"""Rules about stake: providers, nodes, allotments, seats."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from protocol.wire import NodeAuthorization
from tests.integration.conftest import CREDIT
from tests.stateful.play import Play, pick

numbers = st.integers(0, 63)
amounts = st.sampled_from([1, CREDIT, 7 * CREDIT + 3, 40 * CREDIT])
FAR = 2**40


class StakingRules(RuleBasedStateMachine):
    """Stake comes, is bound, is let go, and leaves."""

    play: Play

    @rule(who=numbers, amount=amounts)
    def stake(self, who: int, amount: int) -> None:
        self.play.send("stake", self.play.stakers[who % len(self.play.stakers)], "registry", "stake", amount)

    @rule(who=numbers, amount=amounts)
    def withdraw(self, who: int, amount: int) -> None:
        self.play.send("withdraw", self.play.stakers[who % len(self.play.stakers)], "registry", "withdraw", amount)

    @rule(number=numbers)
    def register(self, number: int) -> None:
        """A node joins, with its own signature."""
        play, node = self.play, self.play.a_node(number)
        nonce = play.world.read("registry", "nonces", node.address)
        message = NodeAuthorization(provider=play.provider.address, node=node.address, nonce=nonce, deadline=FAR)
        signature = node.sign(message, play.world.contracts.registry_domain)
        play.send("register", play.provider, "registry", "addNode", node.address, nonce, FAR, signature)

    @rule(number=numbers)
    def remove_node(self, number: int) -> None:
        node = self.play.a_node(number)
        self.play.send("remove_node", self.play.provider, "registry", "removeNode", node.address)

    @rule(number=numbers, amount=amounts)
    def allot(self, number: int, amount: int) -> None:
        node, pool_id = self.play.a_node(number), self.play.world.pool_id
        self.play.send("allot", self.play.provider, "registry", "allot", node.address, pool_id, amount)

    @rule(number=numbers, amount=amounts)
    def unbond(self, number: int, amount: int) -> None:
        node, pool_id = self.play.a_node(number), self.play.world.pool_id
        self.play.send("unbond", self.play.provider, "registry", "deallot", node.address, pool_id, amount)

    @rule(number=numbers)
    def release(self, number: int) -> None:
        node, pool_id = self.play.a_node(number), self.play.world.pool_id
        self.play.send("release", self.play.provider, "registry", "release", node.address, pool_id)

    @rule(number=numbers)
    def bond_seat(self, number: int) -> None:
        validator = pick(self.play.world.validators, number)
        assert validator is not None
        self.play.send("bond_seat", validator, "registry", "bondSeat", self.play.world.pool_id)

    @rule(number=numbers)
    def release_seat(self, number: int) -> None:
        self._let_go(number, "release_seat", "releaseSeat")

    @rule(number=numbers)
    def withdraw_seat(self, number: int) -> None:
        self._let_go(number, "withdraw_seat", "withdrawSeat")

    def _let_go(self, number: int, name: str, function: str) -> None:
        seat = pick(self.play.pool().seats(), number)
        assert seat is not None
        signer = self.play.world.validator(seat.validator)
        self.play.send(name, signer, "registry", function, self.play.world.pool_id, seat.index)
