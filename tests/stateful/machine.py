"""The state machine: every rule at any time, and after each step that did something the two checks."""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis.stateful import invariant

from coordinator.indexer import index_chain
from tests.stateful.accounting import Books, Reads, check_audit
from tests.stateful.disturbing import DisturbingRules
from tests.stateful.mirroring import check_events, check_facts, mirror_facts
from tests.stateful.paying import PayingRules
from tests.stateful.play import Tally
from tests.stateful.stages import Stage, Stages
from tests.stateful.staking import StakingRules
from tests.stateful.trying import TryingRules
from tests.stateful.working import WorkingRules


class PoolMachine(StakingRules, WorkingRules, TryingRules, PayingRules, DisturbingRules):
    """One run from a stage."""

    def __init__(self, stages: Stages, stage: Stage, tally: Tally) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._stage = stage
        self.play = self._stack.enter_context(stages.begin(stage, tally))

    @invariant()
    def the_mirror_is_the_chain_and_money_adds_up(self) -> None:
        if self.play.is_touched:
            self.play.is_touched = False
            self._look()

    def _look(self) -> None:
        """Everything that the chain is asked, in one request."""
        world = self.play.world
        index_chain(world.coordinator)
        with world.coordinator.reading() as session:
            facts = mirror_facts(session, world.pool_id)
            reads = Reads([fact.read for fact in facts])
            books = Books(session, reads, self.play)
            check_events(session, world, self._stage.first_block)
        reads.found = world.contracts.read_all(reads.asked)
        check_facts(facts, reads.found[: len(facts)])
        books.check()

    def teardown(self) -> None:
        """The auditor has the last word."""
        with self._stack:
            check_audit(self.play)
