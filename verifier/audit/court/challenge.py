"""A submission that nobody accused is brought before a jury, by anybody with a bond.

    fetched ─▶ held against the chain ─▶ judged here ─▶ evidence kept ─▶ challenged
            ─▶ those who accepted are named ─▶ what it was paid is held

In: a submission's id, its coordinator, the chain, an account with credits. Out: `ChallengeReport`. Asked again it goes
on from where it stopped: a challenge stands once, seats that aren't named yet are named, and a payment that has been
anchored since is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from protocol.api import LogEntry, SubmissionView
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.chain.cases import CaseState, Challenge, Inclusion
from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.checks.report import FileReport
from protocol.client import CoordinatorClient
from protocol.errors import NotEligible, NotFound, TransactionReverted, VerificationFailed
from protocol.files import write_atomically
from protocol.merkle.history import verify_inclusion
from protocol.reasons import RejectReason
from protocol.wire import ZERO_ADDRESS, Address, Hash32, UInt64, Wei
from verifier.audit.bundle.history import check_entry, check_leaf
from verifier.audit.step import must_equal, must_hold
from verifier.implicate import implicate

Judge = Callable[[ChainPool, SubmissionView], tuple[RejectReason, FileReport | None]]
"""(chain, submission) to what it is challenged for, and the checks that say so; None where they ran elsewhere."""


FIRST_COME = ("PaymentHeld", "WrongState")
"""Refusals that say that somebody else held the payment, or that the case is over."""


class ChallengeEvidence(BaseModel):
    """What a challenge rests on: the file whose SHA-256 is on chain. `report` is None where it was judged elsewhere."""

    model_config = ConfigDict(frozen=True)
    submission_id: Hash32
    reason: str
    report: FileReport | None


class ChallengeReport(BaseModel):
    """The case as the chain has it now. `evidence_file` is None where this call challenged nothing.

    `held_earnings_wei`: what is held of the provider's earnings, at most what a task can earn; 0 for unpaid work.
    """

    model_config = ConfigDict(frozen=True)
    submission_id: Hash32
    state: str
    reason: str
    challenger: Address
    bond_wei: Wei
    evidence_file: str | None
    evidence_hash: Hash32 | None
    implicated_seats: tuple[int, ...]
    held_earnings_wei: Wei
    jury_deadline: UInt64
    todo: str


@dataclass(frozen=True)
class Challenger:
    """Somebody with an account, a coordinator's answers, and a place to keep the evidence."""

    contracts: Contracts
    lane: Lane
    client: CoordinatorClient
    judge: Judge
    evidence_file: Path

    def challenge(self, submission_id: str) -> ChallengeReport:
        """Raises NotEligible, NotFound, VerificationFailed, TransactionReverted."""
        view, case_file = self.client.submission(submission_id), self.client.case(submission_id)
        submission = view.submission.message
        chain = ChainPool(self.contracts, submission.pool_id, lane=self.lane)
        must_equal("the coordinator serves another submission", submission.id(chain.domain), submission_id)
        view.submission.check(submission.node, chain.domain)
        evidence_hash = None
        if not self._is_challenged(chain, submission_id):
            entry = self._entry(case_file.inclusion.index, "submission.received", submission_id)
            inclusion = self._included(entry, case_file.inclusion.epoch, case_file.inclusion.path, submission.pool_id)
            self._check_eligible(chain, view, inclusion)
            evidence_hash = self._challenge(chain, view, inclusion)
        implicate(chain, submission.pool_id, submission_id, view.verdicts)
        self._hold_payment(chain, view)
        return self._report(chain, submission_id, evidence_hash)

    def _is_challenged(self, chain: ChainPool, submission_id: str) -> bool:
        """Whether somebody has. Raises NotEligible for a case that takes none any more."""
        state = chain.case_of(submission_id).state
        if state is CaseState.NONE:
            return False
        if state is CaseState.CHALLENGED:
            return True
        raise NotEligible(
            "a submission has one case",
            f"this one's is {state.name.lower()}",
            "`proofpool trace` shows what became of it",
        )

    def _entry(self, index: int, event_type: str, submission_id: str) -> LogEntry:
        entries = self.client.entries(index, 1)
        if not entries:
            raise NotFound("the coordinator holds back a leaf", f"leaf {index}, {event_type}", "ask it again later")
        check_entry(entries[0], event_type, submission_id)
        must_equal("the coordinator serves another leaf", entries[0].index, index)
        return entries[0]

    def _included(self, entry: LogEntry, epoch: int, path: tuple[str, ...], pool_id: int) -> Inclusion:
        """What the Court will check of the leaf, checked against its head on chain. Raises VerificationFailed."""
        head = self.contracts.read("ledger", "epochOf", pool_id, epoch)
        must_hold(
            f"the leaf isn't one of epoch {epoch}",
            head["previous_size"] <= entry.index < head["size"],
            f"leaf {entry.index}, the epoch has {head['previous_size']} to {head['size'] - 1}",
        )
        must_hold(
            f"the leaf isn't under the root of epoch {epoch}",
            verify_inclusion(check_leaf(entry), entry.index, head["size"], path, head["root"]),
            f"root {head['root']}",
        )
        return Inclusion(epoch, entry.index, hex0x(canonical_json(entry.event)), path)

    def _check_eligible(self, chain: ChainPool, view: SubmissionView, inclusion: Inclusion) -> None:
        """Raises NotEligible for what the Court would refuse, before the model runs for nothing."""
        head = self.contracts.read("ledger", "epochOf", chain.pool_id, inclusion.epoch)
        deadline, now = head["time"] + chain.record().accuse_seconds, chain.time()
        if now > deadline:
            raise _too_late(deadline, now)
        node = view.submission.message.node
        if chain.provider_of(node) == ZERO_ADDRESS:
            raise VerificationFailed("the node was never authorised by anybody", node)
        bond_wei, balance_wei = (
            chain.jury_terms().challenge_bond_wei,
            self.contracts.read("credits", "balanceOf", self.lane.address),
        )
        if balance_wei < bond_wei:
            why = f"{balance_wei} of {bond_wei} wei, until chain time {deadline}"
            raise NotEligible("a challenge takes a bond", why, f"send credits to {self.lane.address}")

    def _challenge(self, chain: ChainPool, view: SubmissionView, inclusion: Inclusion) -> str | None:
        """The evidence's hash; None where somebody else was first by a moment: the case is theirs, and so the bond."""
        reason, report = self.judge(chain, view)
        mask = self.contracts.read("pools", "caseTerms", chain.pool_id)["slashable_mask"]
        if not mask >> reason.code & 1:
            raise NotEligible(
                "the pool slashes nobody for this", reason.value, "only a slashable reason is a challenge"
            )
        evidence = ChallengeEvidence(submission_id=view.submission_id, reason=reason.value, report=report)
        document = evidence.model_dump_json(indent=2).encode() + b"\n"
        write_atomically(self.evidence_file, document)
        evidence_hash = hex0x(sha256(document))
        shown = (view.submission.message, view.submission.signature, inclusion)
        try:
            chain.challenge(Challenge(*shown, reason.code, evidence_hash))
        except TransactionReverted as error:
            if error.name == "AccusedTooLate":  # judging took its time
                raise _too_late(int(str(error.arguments[0])), chain.time()) from error
            if error.name != "CaseExists" or not self._is_challenged(chain, view.submission_id):
                raise
            return None
        return evidence_hash

    def _hold_payment(self, chain: ChainPool, view: SubmissionView) -> None:
        """Show the Court that the log accepted it, once that is anchored: what was never paid costs no earnings."""
        settling, submission_id = view.settling, view.submission_id
        if settling is None or not settling.amount_wei or settling.epoch >= chain.num_epochs():
            return
        if chain.case_of(submission_id).held_earnings_wei:
            return
        proof = self.client.inclusion(settling.log_index)
        entry = self._entry(settling.log_index, "submission.accepted", submission_id)
        try:
            chain.hold_payment(submission_id, self._included(entry, proof.epoch, proof.path, chain.pool_id))
        except TransactionReverted as error:
            if error.name not in FIRST_COME:
                raise

    def _report(self, chain: ChainPool, submission_id: str, evidence_hash: str | None) -> ChallengeReport:
        case, jury = chain.case_of(submission_id), chain.jury_of(submission_id)
        bond = self.contracts.read("court", "bondOf", submission_id)
        deadline = 0 if jury is None else jury.deadline
        return ChallengeReport(
            submission_id=submission_id,
            state=case.state.name.lower(),
            reason=RejectReason.from_code(case.reason).value,
            challenger=bond["owner"],
            bond_wei=bond["amount"],
            evidence_file=str(self.evidence_file) if evidence_hash else None,
            evidence_hash=evidence_hash,
            implicated_seats=chain.implicated_of(submission_id),
            held_earnings_wei=case.held_earnings_wei,
            jury_deadline=deadline,
            todo=("keep the evidence; " if evidence_hash else "")
            + f"a jury decides, or the case lapses at chain time {deadline}: `proofpool trace`",
        )


def _too_late(deadline: int, now: int) -> NotEligible:
    why = f"the window ended at chain time {deadline}, {max(0, now - deadline)} s ago"
    return NotEligible("it is too late to challenge this", why, "nothing can be done any more")
