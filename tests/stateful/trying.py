"""Rules about cases: accusations, challenges, appeals, disputes over earnings, juries and what they say."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from sqlalchemy import select

from coordinator.db.chain import ChainEvent, Seat
from coordinator.db.log import Event
from coordinator.db.work import SubmissionRow
from protocol.api import Standing
from protocol.canonical import hex0x
from protocol.chain.cases import NOT_SETTLED, Accusation, CaseState, Challenge, Inclusion, Juror, Vote, vote_commitment
from protocol.draw import jury_seats
from protocol.errors import NotFound
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer
from protocol.wire import EarningsAttestation
from tests.integration.conftest import SETTLING, number_hash
from tests.stateful.play import SALT, Play, pick
from tests.stateful.staking import numbers
from verifier.implicate import implicate

votes = st.sampled_from([Vote.UPHOLD, Vote.OVERTURN, Vote.UNAVAILABLE])


class TryingRules(RuleBasedStateMachine):
    """Who accuses whom, and who decides."""

    play: Play

    @rule(number=numbers, then=st.sampled_from(["nothing", "appeal", "enforce"]))
    def accuse(self, number: int, then: str) -> None:
        """Now and then with what follows: the windows are short."""
        if (submission_id := pick(self._submissions(Standing.REJECTED), number)) is None:
            return
        pool = self.play.pool(self.play.world.validators[0])
        self.play.attempt("accuse", lambda: pool.accuse(self._accusation(submission_id)))
        if then == "appeal":
            self.appeal(number)
        elif then == "enforce":
            self.play.node.pass_time(SETTLING["appeal_period"])
            self.enforce(number)

    @rule(number=numbers)
    def challenge(self, number: int) -> None:
        if (submission_id := pick(self._submissions(), number)) is not None:
            creator = self.play.world.chain.creator
            self.play.attempt("challenge", lambda: self.play.pool(creator).challenge(self._challenge(submission_id)))

    @rule(number=numbers)
    def implicate(self, number: int) -> None:
        """All seats that accepted it answer for that."""
        if (submission_id := self._case(number, CaseState.ACCUSED, CaseState.APPEALED, CaseState.CHALLENGED)) is None:
            return
        pool, world = self.play.pool(self.play.world.chain.creator), self.play.world
        verdicts = world.client().submission(submission_id).verdicts
        self.play.attempt("implicate", lambda: implicate(pool, world.pool_id, submission_id, verdicts))

    @rule(number=numbers)
    def hold_payment(self, number: int) -> None:
        """Whoever shows that the log accepted it, as soon as that is anchored."""
        states = (CaseState.ACCUSED, CaseState.APPEALED, CaseState.CHALLENGED, CaseState.UPHELD)
        if (submission_id := self._case(number, *states)) is None:
            return
        if (shown := self._payment(submission_id)) is not None:
            pool = self.play.pool(self.play.world.chain.creator)
            self.play.attempt("hold_payment", lambda: pool.hold_payment(submission_id, shown))

    @rule(number=numbers)
    def appeal(self, number: int) -> None:
        if (submission_id := self._case(number, CaseState.ACCUSED)) is not None:
            self.play.attempt("appeal", lambda: self.play.pool(self.play.provider).appeal(submission_id))

    @rule(number=numbers)
    def enforce(self, number: int) -> None:
        if (submission_id := self._case(number, CaseState.ACCUSED)) is not None:
            self.play.attempt("enforce", lambda: self.play.pool(self.play.provider).enforce(submission_id))

    @rule()
    def dispute(self) -> None:
        """The newest root is called false; the seats that signed it answer for it."""
        play, creator = self.play, self.play.world.chain.creator
        roots = play.pool().earnings_since(0)
        if not roots or play.pool().dispute_of(play.pool().earnings_id(roots[-1].epoch)) is not None:
            return
        epoch = roots[-1].epoch
        if play.attempt("dispute", lambda: play.pool(creator).dispute_earnings(epoch)):
            play.attempt("implicate_attester", lambda: self._implicate_attester(epoch))

    @rule(number=numbers)
    def call_jury(self, number: int) -> None:
        if (case_id := self._jury_case(number, is_seated=False)) is not None:
            self.play.attempt("call_jury", lambda: self._seat(case_id))

    @rule(number=numbers, vote=votes, everybody=st.booleans())
    def commit_votes(self, number: int, vote: Vote, everybody: bool) -> None:
        """One juror, or all that are left."""
        case_id, jurors = self._jury(number)
        silent = [(place, juror) for place, juror in jurors if not juror.has_committed]
        for place, juror in silent if everybody else silent[:1]:
            self._commit_vote(case_id, place, juror, vote)

    @rule(number=numbers)
    def reveal_votes(self, number: int) -> None:
        """All that are committed to."""
        case_id, jurors = self._jury(number)
        for place, juror in jurors:
            self._reveal_vote(case_id, place, juror)

    @rule(number=numbers)
    def resolve(self, number: int) -> None:
        """With the votes that can be revealed by then."""
        self.reveal_votes(number)
        submission_id = self._case(number, CaseState.APPEALED, CaseState.CHALLENGED)
        if submission_id is not None:
            self.play.attempt("resolve", lambda: self.play.pool(self.play.provider).resolve(submission_id))

    @rule()
    def resolve_dispute(self) -> None:
        self.reveal_votes(0)
        pool = self.play.pool(self.play.provider)
        epochs = [root.epoch for root in pool.earnings_since(0) if pool.dispute_of(pool.earnings_id(root.epoch))]
        if epochs:
            self.play.attempt("resolve_dispute", lambda: pool.resolve_dispute(epochs[0]))

    # --- what a case is made of ---

    def _submissions(self, *standings: Standing) -> list[str]:
        """Oldest first; those in one of the standings, if any are named."""
        found = select(SubmissionRow.submission_id).order_by(SubmissionRow.log_index)
        with self.play.world.coordinator.reading() as session:
            return list(session.scalars(found.where(SubmissionRow.standing.in_(standings)) if standings else found))

    def _case(self, number: int, *states: CaseState) -> str | None:
        """A submission whose case is in one of these states."""
        pool = self.play.pool()
        return pick([one for one in self._submissions() if pool.case_of(one).state in states], number)

    def _jury_case(self, number: int, *, is_seated: bool) -> str | None:
        """A case whose jury is summoned, and seated or not."""
        with self.play.world.coordinator.reading() as session:
            summoned = session.scalars(select(ChainEvent.subject).where(ChainEvent.name == "JurySummoned")).all()
        pool = self.play.pool()
        juries = {case_id: pool.jury_of(case_id) for case_id in dict.fromkeys(summoned)}
        return pick([one for one, jury in juries.items() if jury and jury.is_seated is is_seated], number)

    def _jury(self, number: int) -> tuple[str, list[tuple[int, Juror]]]:
        """A jury that sits, if there is one: its case, and its jurors with their places."""
        case_id = self._jury_case(number, is_seated=True)
        jury = None if case_id is None else self.play.pool().jury_of(case_id)
        return case_id or "", list(enumerate(jury.jurors)) if jury else []

    def _inclusion(self, epoch: int, index: int, path: tuple[str, ...]) -> Inclusion:
        with self.play.world.coordinator.reading() as session:
            return Inclusion(epoch, index, hex0x(session.get_one(Event, index).document), path)

    def _payment(self, submission_id: str) -> Inclusion | None:
        """That round 0 settled it; None while no epoch on chain holds that."""
        client = self.play.world.client()
        if (settling := client.submission(submission_id).settling) is None:
            return None
        try:
            proof = client.inclusion(settling.log_index)
        except NotFound:
            return None
        return self._inclusion(proof.epoch, proof.index, proof.path)

    def _accusation(self, submission_id: str) -> Accusation:
        case = self.play.world.client().case(submission_id)
        slashing = [one for one in case.verdicts if one.verdict.message.outcome == Outcome.SLASH][:2]
        return Accusation(
            submission=case.submission.message,
            node_signature=case.submission.signature,
            inclusion=self._inclusion(case.inclusion.epoch, case.inclusion.index, case.inclusion.path),
            verdicts=tuple(one.verdict.message for one in slashing),
            signatures=tuple(one.verdict.signature for one in slashing),
            draw_indexes=tuple(one.draw for one in slashing),
            settling=NOT_SETTLED,
        )

    def _challenge(self, submission_id: str) -> Challenge:
        case = self.play.world.client().case(submission_id)
        inclusion = self._inclusion(case.inclusion.epoch, case.inclusion.index, case.inclusion.path)
        reason = RejectReason.TOPLOC_MISMATCH.code
        return Challenge(case.submission.message, case.submission.signature, inclusion, reason, number_hash(5))

    # --- juries ---

    def _seat(self, case_id: str) -> None:
        pool = self.play.pool(self.play.provider)
        jury, size = pool.jury_of(case_id), pool.jury_terms().jury_size
        assert jury is not None
        while (beacon := pool.jury_beacon(jury.beacon_block)) is None:
            self.play.world.mine()
        drawn = jury_seats(beacon, case_id, pool.seats(), jury.epoch, pool.parties_of(case_id), size)
        pool.call_jury(case_id, [one.draw_index for one in drawn])

    def _commit_vote(self, case_id: str, place: int, juror: Juror, vote: Vote) -> None:
        commitment = vote_commitment(case_id, juror.seat, vote, SALT)
        pool = self.play.pool(self._signer(juror))
        if self.play.attempt("commit_vote", lambda: pool.commit_vote(case_id, place, commitment)):
            self.play.votes[case_id, juror.seat] = vote

    def _reveal_vote(self, case_id: str, place: int, juror: Juror) -> None:
        vote = self.play.votes.get((case_id, juror.seat))
        if vote is not None and juror.vote is Vote.NONE:
            pool = self.play.pool(self._signer(juror))
            self.play.attempt("reveal_vote", lambda: pool.reveal_vote(case_id, place, vote, SALT))

    def _signer(self, juror: Juror) -> Signer:
        return self.play.world.validator(juror.validator)

    def _implicate_attester(self, epoch: int) -> None:
        world, record = self.play.world, self.play.world.read("ledger", "earningsOf", self.play.world.pool_id, epoch)
        with world.coordinator.reading() as session:
            validator = world.validator(session.get_one(Seat, (world.pool_id, 0)).validator)
        message = EarningsAttestation(
            pool_id=world.pool_id, epoch=epoch, root=record["root"], total_wei=record["total"], seat=0
        )
        signature = validator.sign(message, world.domain)
        self.play.pool(world.chain.creator).implicate_attester(epoch, 0, signature)
