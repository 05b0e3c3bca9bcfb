"""Rules about work: leases, submissions, verdicts, epochs, policy versions. The coordinator's loop turns when told."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from sqlalchemy import select

from coordinator.db.chain import Version
from coordinator.db.work import TaskRow
from coordinator.draws import open_draws
from coordinator.epochs import close_epoch
from coordinator.loop import Loop
from coordinator.sender import send_outbox
from coordinator.settle import settle
from protocol.api import Assignment, Standing
from protocol.reasons import Outcome, RejectReason
from protocol.wire import Signed, Task
from tests.integration.conftest import number_hash
from tests.stateful.play import Play, pick
from tests.stateful.staking import numbers

RESEND_SECONDS = 20
VERDICTS = (
    (Outcome.ACCEPT, None),
    (Outcome.SLASH, RejectReason.WRONG_PROMPTS),
    (Outcome.DROP, RejectReason.LOGPROB_MISMATCH),
)


class WorkingRules(RuleBasedStateMachine):
    """From a lease to a decision, in single steps."""

    play: Play

    @rule(number=numbers)
    def lease(self, number: int) -> None:
        node = self.play.a_node(number)
        self.play.attempt("lease", lambda: self.play.world.lease(self._newest_version(), node))

    @rule(number=numbers)
    def submit(self, number: int) -> None:
        """What is leased; where nothing is, something is leased for another time."""
        if (task := self._open_task(number)) is None:
            self.lease(number)
            return
        node = next(one for one in self.play.nodes if one.address == task.message.node)
        self.play.attempt("submit", lambda: self.play.world.submit(task, node))

    @rule(number=numbers)
    def give_back(self, number: int) -> None:
        if (task := self._open_task(number)) is None:
            return
        world, node = self.play.world, next(one for one in self.play.nodes if one.address == task.message.node)
        task_id = task.message.id(world.domain)
        self.play.attempt("give_back", lambda: world.client(node).return_task(task_id))

    @rule(verdict=st.sampled_from(VERDICTS))
    def judge(self, verdict: tuple[Outcome, RejectReason | None]) -> None:
        """Whoever is drawn commits to this verdict, and the commitments are anchored."""
        open_draws(self.play.world.coordinator)
        committed = {(one.verdict.message.submission_id, one.verdict.message.seat) for one in self.play.opened}
        for work in self.play.world.assignments():
            if (work.submission_id, work.seat) not in committed:
                self.play.attempt("judge", lambda work=work: self._commit(work, *verdict))  # type: ignore[misc]
        if len(self.play.opened) > len(committed):
            self.anchor()

    @rule()
    def reveal(self) -> None:
        """Every verdict whose commitment is anchored."""
        kept = []
        for opened in self.play.opened:
            if not self.play.attempt("reveal", lambda opened=opened: self.play.world.reveal(opened)):  # type: ignore[misc]
                kept.append(opened)
        self.play.opened = kept
        settle(self.play.world.coordinator)

    @rule()
    def turn(self) -> None:
        """The coordinator's loop, once, and a block."""
        self._later()
        Loop(self.play.world.coordinator).turn()
        self.play.world.mine()
        self.play.did("turn")

    @rule()
    def anchor(self) -> None:
        """The open epoch is closed, if it can be, and what is queued is sent.

        Hypothesis likes the first name among rules without arguments best: this one takes all others further.
        """
        self._later()
        coordinator = self.play.world.coordinator
        close_epoch(coordinator, forced=True)
        for _ in range(2):
            send_outbox(coordinator)
        self.play.world.mine()
        self.play.did("anchor")

    @rule()
    def publish(self) -> None:
        world, version = self.play.world, self.play.pool().num_versions()
        call = (world.pool_id, version, number_hash(version))
        self.play.send("publish", world.trainer, "ledger", "publishWeights", *call)

    def _later(self) -> None:
        """By the coordinator's own clock, so that what a reorg has dropped is handed over again."""
        self.play.world.clock.seconds += RESEND_SECONDS

    def _commit(self, work: Assignment, outcome: Outcome, reason: RejectReason | None) -> None:
        world = self.play.world
        self.play.opened.append(world.commit(work, outcome, reason, part=world.part()))

    def _open_task(self, number: int) -> Signed[Task] | None:
        with self.play.world.coordinator.reading() as session:
            leased = select(TaskRow.signed_task).where(TaskRow.standing == Standing.LEASED).order_by(TaskRow.log_index)
            found = pick(session.scalars(leased).all(), number)
        return None if found is None else Signed[Task].model_validate(found)

    def _newest_version(self) -> int:
        with self.play.world.coordinator.reading() as session:
            sealed = select(Version.policy_version).where(Version.beacon_hash.is_not(None))
            return max(session.scalars(sealed), default=0)
