"""Rules about what nobody asked for: time, reorgs, restarts."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from coordinator.db.chain import Pool
from tests.stateful.play import Play

SECONDS = (6, 16, 35, 61, 130, 700)
CLAIM_EXPIRY_SECONDS = 180 * 86_400


class DisturbingRules(RuleBasedStateMachine):
    """The chain and the machines as they are."""

    play: Play

    @rule(seconds=st.sampled_from(SECONDS))
    def wait(self, seconds: int) -> None:
        self.play.node.pass_time(seconds)
        self.play.did("wait")

    @rule()
    def wait_for_claims_to_expire(self) -> None:
        """In a pool that is closing only: nothing else outlives it."""
        with self.play.world.coordinator.reading() as session:
            is_closing = session.get_one(Pool, self.play.world.pool_id).closing
        if is_closing:
            self.play.node.pass_time(CLAIM_EXPIRY_SECONDS)
            self.play.may_have_lapsed = True
            self.play.did("expiry")

    @rule(depth=st.integers(1, 5), keeps_transactions=st.booleans())
    def reorg(self, depth: int, keeps_transactions: bool) -> None:
        """Of as many blocks as the node can take back."""
        node = self.play.node
        possible = min(depth, node.client.head().number - node.first_block)
        if possible > 0 and node.reorg(possible, keeps_transactions=keeps_transactions):
            self.play.did(f"reorg_{possible}")

    @rule(number=st.integers(0, 3))
    def restart_node(self, number: int) -> None:
        """One time in four, because it takes a while."""
        if number == 0:
            self.play.node.restart()
            self.play.did("restart_node")

    @rule()
    def restart_coordinator(self) -> None:
        self.play.world.restart()
        self.play.did("restart_coordinator")
