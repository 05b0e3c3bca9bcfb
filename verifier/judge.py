"""One drawn submission to one kept verdict.

In: an `Assignment`. Its draw is checked, its file fetched, the checks run. Out: `KeptVerdict`, durable.
Raises VerificationFailed where the coordinator isn't telling the truth, Unreachable where something can't be
fetched; neither leads to a verdict. The salt is random: there are few possible verdicts, and nobody may guess
one from its digest. With the checks comes the seat's work stamp, and what it finds of the stamps of those that have
revealed before (`verifier/stamps.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from protocol.api import Assignment, SubmissionView
from protocol.canonical import canonical_hash, hex0x, sha256
from protocol.client import CoordinatorClient
from protocol.draw import REAUDIT_ROUND
from protocol.environments.base import Environment
from protocol.environments.registry import environment_of
from protocol.errors import VerificationFailed
from protocol.reasons import Cost, Outcome
from protocol.rules import Rules
from protocol.signing import Signer, SigningDomain
from protocol.tokenizer import Tokenizer
from protocol.wire import MAX_STAMP_REVIEWS, Signed, Submission, Verdict
from verifier.case import Dossier, Facts, Instruments
from verifier.chain import PoolChain
from verifier.colleagues import drawn_verdict, withheld_verdicts
from verifier.completions import Completions
from verifier.draws import check_assignment
from verifier.history import History, Received
from verifier.pipeline import Finding, examine, no_twin
from verifier.stamps import Revealed, StampSeat, audit_for, reviews_of, stamps_of
from verifier.verdicts import KeptVerdict, Verdicts
from verifier.weights import Weights


class Judge:
    """Turns assignments into verdicts."""

    def __init__(
        self,
        signer: Signer,
        chain: PoolChain,
        client: CoordinatorClient,
        history: History,
        verdicts: Verdicts,
        weights: Weights,
        completions: Completions,
    ) -> None:
        self._signer = signer
        self._chain = chain
        self._client = client
        self._history = history
        self._verdicts = verdicts
        self._weights = weights
        self._completions = completions
        self._rules: dict[str, Rules] = {}
        self._environments: dict[str, Environment] = {}
        self._prepared: tuple[str, int] | None = None

    def prepare(self) -> None:
        """Have the newest policy version and the pool's environment at hand before the first file asks for them."""
        info = self._client.pool()
        wanted = None if info.policy_version is None else (info.rules_hash, info.policy_version)
        if wanted is not None and wanted != self._prepared:
            self._instruments(self._rules_of(info.rules_hash), wanted[1]).load_model()
            self._prepared = wanted

    def judge(self, assignment: Assignment) -> KeptVerdict:
        """The verdict of this draw; one that was given before stands."""
        kept = self._verdicts.find(assignment.submission_id, assignment.round, assignment.seat)
        if kept is not None:
            return kept
        received = check_assignment(assignment, self._signer.address, self._chain, self._history)
        dossier = self._fetch(assignment, received)
        claim = assignment.submission.message
        own = StampSeat(assignment.beacon_hash, assignment.submission_id, assignment.round, assignment.seat)
        revealed = self._revealed(assignment, received)
        plan = partial(audit_for, [own, *(one.seat for one in revealed)])
        finding = examine(dossier, self._instruments(dossier.rules, claim.policy_version), plan)
        _check_units(received, finding)
        if finding.case is not None and is_the_nodes_own(finding):
            self._completions.keep(claim.node, assignment.submission_id, finding.case)
        finding = stamped(finding, own, revealed)
        verdict = seal(assignment, finding, self._signer, self._chain.domain)
        return self._verdicts.keep(verdict, claim.node, finding.completions_hash)

    def look_again(self, view: SubmissionView, received: Received) -> Finding:
        """What the checks say of every row, as a juror asks: no draw, no stamp, and nothing that only we have seen.

        Raises Unreachable, NotFound or Rejected where something can't be fetched.
        """
        claim = view.submission.message
        file = self._client.submission_file(view.submission_id)
        rules_hashes = self._chain.record().rules_hashes | {claim.rules_hash}
        facts = self._facts(claim, received, rules_hashes)
        dossier = Dossier(view.submission, view.task, file, self._rules_of(claim.rules_hash), facts, view.renewal)
        instruments = self._instruments(dossier.rules, claim.policy_version)
        return examine(dossier, replace(instruments, find_twin=no_twin))

    def _revealed(self, assignment: Assignment, received: Received) -> list[Revealed]:
        """What others have revealed of this submission, as far as it is a drawn seat's signed word: one a seat.

        Raises VerificationFailed where the log names a verdict that isn't served: its stamp couldn't be reviewed.
        """
        submission_id, own = assignment.submission_id, self._signer.address
        logged = self._history.payments.opinions.revealed(submission_id)
        if not (assignment.round or assignment.num_revealed or logged):
            return []
        views = self._client.submission(submission_id).verdicts
        withheld = withheld_verdicts(views, submission_id, (one for one in logged if one[1] != own), self._chain)
        if withheld:
            raise VerificationFailed("the coordinator holds back verdicts that the log names", "; ".join(withheld))
        claim = assignment.submission.message
        colleagues = [view for view in views if view.validator != own]
        drawn = (drawn_verdict(view, claim, received, self._chain, self._history) for view in colleagues)
        return list({one.seat: one for one in drawn if one is not None}.values())[:MAX_STAMP_REVIEWS]

    def _fetch(self, assignment: Assignment, received: Received) -> Dossier:
        claim = assignment.submission.message
        file = self._client.submission_file(assignment.submission_id)
        if hex0x(sha256(file)) != assignment.file_sha256:
            raise VerificationFailed("the coordinator serves another file than it names", assignment.submission_id)
        rules_hashes = self._chain.record().rules_hashes | self._settled_rules(assignment)
        facts = self._facts(claim, received, rules_hashes)
        rules = self._rules_of(claim.rules_hash)
        return Dossier(assignment.submission, assignment.task, file, rules, facts, assignment.renewal)

    def _facts(self, claim: Submission, received: Received, rules_hashes: frozenset[str]) -> Facts:
        return Facts(
            domain=self._chain.domain,
            coordinator=self._chain.record().coordinator,
            beacon_hash=self._chain.version(claim.policy_version).beacon_hash,
            received_time=received.time,
            rules_hashes=rules_hashes,
        )

    def _settled_rules(self, assignment: Assignment) -> frozenset[str]:
        """In round 1 the pool may have gone over to other rules: whether they were in force was round 0's question."""
        is_again = assignment.round == REAUDIT_ROUND
        return frozenset({assignment.submission.message.rules_hash}) if is_again else frozenset()

    def _rules_of(self, rules_hash: str) -> Rules:
        if rules_hash not in self._rules:
            self._rules[rules_hash] = self._client.rules(rules_hash)
        return self._rules[rules_hash]

    def _instruments(self, rules: Rules, policy_version: int) -> Instruments:
        from protocol.weights import ModelConfig  # torch is loaded for the first submission

        return Instruments(
            environment=self._environment(rules, policy_version),
            model_config=ModelConfig.load(self._weights.fetch(policy_version)),
            load_model=partial(self._weights.model, policy_version),
            find_twin=self._verdicts.find_twin,
        )

    def _environment(self, rules: Rules, policy_version: int) -> Environment:
        """The pool's environment, with the tokenizer that comes with the weights; its hash is in the rules."""
        if rules.rules_hash not in self._environments:
            tokenizer = Tokenizer.load(self._weights.fetch(policy_version))
            self._environments[rules.rules_hash] = environment_of(rules.environment, tokenizer)
        return self._environments[rules.rules_hash]


def stamped(finding: Finding, own: StampSeat, revealed: Sequence[Revealed]) -> Finding:
    """With the seat's own work stamp, and its reviews of those that were revealed before."""
    stamp, *expected = stamps_of(finding.case, [own, *(one.seat for one in revealed)])
    reviews = tuple(reviews_of(revealed, expected, finding.reason))
    evidence = finding.evidence.model_copy(update={"work_stamp": stamp, "stamp_reviews": reviews})
    return replace(finding, evidence=evidence)


def is_the_nodes_own(finding: Finding) -> bool:
    """Whether the node answers for the file: it isn't refused for its signature or lease."""
    return finding.reason is None or finding.reason.cost is not Cost.RETRY


def _check_units(received: Received, finding: Finding) -> None:
    """What will be paid for is what was handed in."""
    data = received.event.get("data")
    logged = data.get("num_units") if isinstance(data, dict) else None
    if finding.outcome is Outcome.ACCEPT and logged != finding.evidence.num_units:
        raise VerificationFailed(
            "the log counts other units than the file has",
            f"{logged} of {received.submission_id}, the file has {finding.evidence.num_units}",
        )


def seal(assignment: Assignment, finding: Finding, signer: Signer, domain: SigningDomain) -> KeptVerdict:
    """The signed verdict of a finding, for the seat that was drawn."""
    claim = assignment.submission.message
    verdict = Verdict(
        submission_id=assignment.submission_id,
        pool_id=claim.pool_id,
        epoch=assignment.epoch,
        round=assignment.round,
        seat=assignment.seat,
        outcome=finding.outcome,
        reason=finding.reason.code if finding.reason else 0,
        rules_hash=claim.rules_hash,
        evidence_hash=canonical_hash(finding.evidence.as_json()),
    )
    return KeptVerdict(Signed[Verdict].by(signer, verdict, domain), finding.evidence, hex0x(secrets.token_bytes(32)))
