"""The last submissions of a node: where each stands, and its money.

In: the outbox's answers, the coordinator, the chain; whoever of these answers. Out: `RecentSubmission`, oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic import BaseModel, ConfigDict

from protocol.api import SubmissionView
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.reasons import RejectReason
from protocol.wire import Hash32
from worker.account import Account, Case, read_account, read_case
from worker.outbox import Answer
from worker.payment import Payment, PaymentState, payment_of
from worker.questions import Questions


class RecentSubmission(BaseModel):
    """`standing` is the coordinator's, or `refused` where it wasn't taken in; `payment` is where its money stands.

    `num_units` is None where the coordinator doesn't say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    submission_id: Hash32
    policy_version: int
    counter: int
    standing: str
    num_units: int | None
    reason: str | None
    hint: str | None
    payment: Payment


def views_of(answers: Sequence[Answer], client: CoordinatorClient, questions: Questions) -> dict[str, SubmissionView]:
    """What the coordinator says of those that it has taken in, by id."""
    views = {}
    for answer in answers:
        view = questions.ask(partial(client.submission, answer.submission_id)) if answer.receipt else None
        if view is not None:
            views[answer.submission_id] = view
    return views


def account_of(
    provider: str, views: Sequence[SubmissionView], client: CoordinatorClient, chain: ChainPool, questions: Questions
) -> Account | None:
    """The provider's account, as far back as these submissions are settled."""
    epochs = {view.settling.epoch for view in views if view.settling is not None}
    return questions.ask(partial(read_account, client, chain, provider, epochs))


def case_of(
    answer: Answer, client: CoordinatorClient | None, chain: ChainPool | None, questions: Questions
) -> Case | None:
    """None where there is none, or nobody answers; what was never taken in can't be accused."""
    if chain is None or answer.receipt is None:
        return None
    return questions.ask(partial(read_case, client, chain, answer.submission_id))


def seen(answer: Answer, view: SubmissionView | None, account: Account | None, case: Case | None) -> RecentSubmission:
    """A submission as coordinator and chain see it now, or as it was answered."""
    reason = answer.refusal.value if answer.refusal else view.reason if view else None
    return RecentSubmission(
        submission_id=answer.submission_id,
        policy_version=answer.policy_version,
        counter=answer.counter,
        standing="refused" if answer.refusal else view.standing.value if view else "received",
        num_units=view.num_units if view else None,
        reason=reason,
        hint=RejectReason(reason).hint if reason else None,
        payment=Payment(state=PaymentState.REFUSED) if answer.refusal else payment_of(view, account, case),
    )
