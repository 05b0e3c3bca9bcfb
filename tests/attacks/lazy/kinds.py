"""Validators that don't look: each a judge that replaces how a verdict comes about, and nothing else.

In: an assignment. Out: a verdict that looks like an honest one. They commit, reveal and get paid by the product's own
code; only the numbers that the model would give are missing to them.
"""

from __future__ import annotations

import numpy as np

from protocol.api import Assignment, VerdictView
from protocol.checks.results import passed
from protocol.errors import Unreachable
from protocol.reasons import Outcome
from protocol.stamp import NUM_PAIRS, stamp_of
from protocol.wire import Evidence, StampReview
from verifier.judge import Judge, seal
from verifier.pipeline import Finding
from verifier.verdicts import KeptVerdict


class LazyJudge(Judge):
    """Keeps whatever `imagined` says."""

    def judge(self, assignment: Assignment) -> KeptVerdict:
        kept = self._verdicts.find(assignment.submission_id, assignment.round, assignment.seat)
        if kept is not None:
            return kept
        finding = Finding(Outcome.ACCEPT, None, self.imagined(assignment), None)
        verdict = seal(assignment, finding, self._signer, self._chain.domain)
        return self._verdicts.keep(verdict, assignment.submission.message.node, None)

    def imagined(self, assignment: Assignment) -> Evidence:
        raise NotImplementedError

    def evidence(self, assignment: Assignment, stamp: tuple[float, ...]) -> Evidence:
        """What an accepting verdict looks like."""
        view = self._client.submission(assignment.submission_id)
        return Evidence(
            submission_id=assignment.submission_id,
            seed="0x" + "5e" * 32,
            num_units=view.num_units,
            checks=(passed("schema", num_audited=view.num_rollouts), passed("envelope")),
            work_stamp=stamp,
            stamp_reviews=tuple(self.review(verdict) for verdict in self.colleagues(assignment)),
        )

    def colleagues(self, assignment: Assignment) -> list[VerdictView]:
        """What others have revealed of this submission so far."""
        views = self._client.submission(assignment.submission_id).verdicts
        return [view for view in views if view.validator != self._signer.address]

    def review(self, view: VerdictView) -> StampReview:
        """Speaks well of everybody."""
        message = view.verdict.message
        return StampReview(round=message.round, seat=message.seat, agrees=True, largest_difference=0.0)


class AcceptsUnseen(LazyJudge):
    """Accepts everything, and invents the numbers."""

    def imagined(self, assignment: Assignment) -> Evidence:
        return self.evidence(assignment, (-12.5,) * NUM_PAIRS)


class Guesses(LazyJudge):
    """Accepts everything, with log-probs from the distribution that other tokens' log-probs have."""

    def imagined(self, assignment: Assignment) -> Evidence:
        rng = np.random.default_rng(int(assignment.submission_id[2:10], 16))
        return self.evidence(assignment, stamp_of(rng.normal(-14.7, 2.8, NUM_PAIRS).clip(max=0)))


class ForgetsTheStamp(LazyJudge):
    """Accepts everything, and leaves out what it hasn't got."""

    def imagined(self, assignment: Assignment) -> Evidence:
        return self.evidence(assignment, ())


class Copies(LazyJudge):
    """Waits until a colleague has revealed, and says and shows the same."""

    def imagined(self, assignment: Assignment) -> Evidence:
        revealed = self.colleagues(assignment)
        if not revealed:
            raise Unreachable("nobody to copy from yet", assignment.submission_id)
        return revealed[0].evidence


class AuditsUnseen(AcceptsUnseen):
    """Looks in round 0, where it may be audited, and not in round 1."""

    def judge(self, assignment: Assignment) -> KeptVerdict:
        return super().judge(assignment) if assignment.round else Judge.judge(self, assignment)


class Slanders(LazyJudge):
    """Accepts everything, invents the numbers, and disputes everybody else's."""

    def imagined(self, assignment: Assignment) -> Evidence:
        return self.evidence(assignment, (-12.5,) * NUM_PAIRS)

    def review(self, view: VerdictView) -> StampReview:
        message = view.verdict.message
        return StampReview(round=message.round, seat=message.seat, agrees=False, largest_difference=9.0)
