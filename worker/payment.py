"""Where the money of a submission stands: what it waits for, there to claim, paid, or lost, and by what.

    waiting_for_verdicts ─┬─▶ waiting_for_earnings_root ─▶ claimable_later ─▶ claimable ─▶ paid
                          └─▶ dropped ─▶ accused ─▶ before_jury
                                            └─▶ slashed

In: what the coordinator says of a submission, and what the chain says of roots, claims and the case. Out: `Payment`,
words that scripts can rely on, and a line for people.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from protocol.amount import format_amount
from protocol.api import Standing, SubmissionView
from protocol.chain.cases import CaseState
from protocol.reasons import Outcome
from protocol.wire import Wei
from worker.account import Account, Case, Root


class PaymentState(StrEnum):
    REFUSED = "refused"
    """It was never taken in."""
    UNKNOWN = "unknown"
    """Nobody answers."""
    WAITING_FOR_VERDICTS = "waiting_for_verdicts"
    WAITING_FOR_EARNINGS_ROOT = "waiting_for_earnings_root"
    CLAIMABLE_LATER = "claimable_later"
    CLAIMABLE = "claimable"
    PAID = "paid"
    WITHHELD = "withheld"
    """Earned, but cases withhold as much of the account."""
    ACCEPTED = "accepted"
    """Earned; how far the payment is, nobody answers."""
    DROPPED = "dropped"
    """Not paid; no stake is lost."""
    ACCUSED = "accused"
    BEFORE_JURY = "before_jury"
    SLASHED = "slashed"


OPEN_CASES = (PaymentState.ACCUSED, PaymentState.BEFORE_JURY)
_CASES = {
    CaseState.ACCUSED: PaymentState.ACCUSED,
    CaseState.APPEALED: PaymentState.BEFORE_JURY,
    CaseState.CHALLENGED: PaymentState.BEFORE_JURY,
    CaseState.UPHELD: PaymentState.SLASHED,
}
"""What a case makes of a submission; one that fell makes nothing of it."""


class Payment(BaseModel):
    """`claimable_in_seconds` and `deadline_in_seconds` (of the appeal, then of the jury) are 0 once over.

    `claimable_in_seconds` is None under a root that an open dispute holds.

    `num_slash_verdicts` are those against dropped work: with a quorum of them an accusation may follow. `held_wei` of
    the node's stake is what an open case may cost, `slashed_wei` what an upheld one has cost.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    state: PaymentState
    amount_wei: Wei | None = None
    claimable_in_seconds: int | None = None
    num_slash_verdicts: int = 0
    held_wei: Wei | None = None
    slashed_wei: Wei | None = None
    deadline: int | None = None
    deadline_in_seconds: int | None = None

    @property
    def words(self) -> str:
        may_follow = f", {self.num_slash_verdicts} verdicts say slash: an accusation may follow"
        amount = "" if self.amount_wei is None else f"{format_amount(self.amount_wei)} credits "
        return {
            PaymentState.REFUSED: "not taken in",
            PaymentState.UNKNOWN: "payment unknown",
            PaymentState.WAITING_FOR_VERDICTS: "waiting for verdicts",
            PaymentState.WAITING_FOR_EARNINGS_ROOT: f"{amount}earned, waiting for the earnings root",
            PaymentState.CLAIMABLE_LATER: f"{amount}earned, {self._when}",
            PaymentState.CLAIMABLE: f"{amount}claimable",
            PaymentState.PAID: f"{amount}paid",
            PaymentState.WITHHELD: f"{amount}earned, withheld by a case",
            PaymentState.ACCEPTED: f"{amount}earned, payment unknown",
            PaymentState.DROPPED: "dropped" + (may_follow if self.num_slash_verdicts else ""),
            PaymentState.ACCUSED: f"accused, {_credits(self.held_wei)} of the stake are held",
            PaymentState.BEFORE_JURY: f"before a jury, {_credits(self.held_wei)} of the stake are held",
            PaymentState.SLASHED: f"slashed, {_credits(self.slashed_wei)} of the stake",
        }[self.state]

    @property
    def _when(self) -> str:
        if self.claimable_in_seconds is None:
            return "not claimable while a dispute over the earnings root is open"
        return f"claimable in {self.claimable_in_seconds} s"

    @property
    def urgency(self) -> tuple[bool, int]:
        """What can still be appealed comes first, and of that what ends first."""
        return not (self.state is PaymentState.ACCUSED and self.deadline_in_seconds), self.deadline or 0

    @property
    def todo(self) -> str:
        """What can be done about it; empty where nothing has to be."""
        until = "" if self.deadline is None else f"{datetime.fromtimestamp(self.deadline, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if self.state is PaymentState.ACCUSED and self.deadline_in_seconds:
            left = f"{until}, {self.deadline_in_seconds} s from now"
            how = "if it holds, `proofpool provider appeal` with the provider's key"
            return f"`proofpool worker verify` it; {how} until {left}"
        if self.state is PaymentState.ACCUSED:
            return f"nothing: the appeal was possible until {until}; anybody may enforce the slash"
        if self.state is PaymentState.BEFORE_JURY:
            return f"wait for the jury until {until}"
        if self.state is PaymentState.SLASHED:
            return "nothing: a slash is final; find the cause before the node goes on"
        return ""


def _credits(wei: int | None) -> str:
    return f"{format_amount(wei or 0)} credits"


def payment_of(view: SubmissionView | None, account: Account | None, case: Case | None) -> Payment:
    """Of a submission that was taken in; None for what nobody answers."""
    if case is not None and (state := _CASES.get(case.state)) is not None:
        is_open = state in OPEN_CASES
        return Payment(
            state=state,
            held_wei=case.held_wei if is_open else None,
            slashed_wei=None if is_open else case.slashed_wei,
            deadline=case.deadline if is_open else None,
            deadline_in_seconds=case.deadline_in_seconds if is_open else None,
        )
    if view is None:
        return Payment(state=PaymentState.UNKNOWN)
    if view.settling is None:
        is_over = view.standing == Standing.REORGED
        return Payment(state=PaymentState.DROPPED if is_over else PaymentState.WAITING_FOR_VERDICTS)
    if not view.settling.amount_wei:
        num_slash = sum(v.verdict.message.outcome == Outcome.SLASH for v in view.verdicts)
        return Payment(state=PaymentState.DROPPED, num_slash_verdicts=num_slash)
    return _earned(view.settling.amount_wei, view.settling.epoch, account)


def _earned(amount_wei: int, epoch: int, account: Account | None) -> Payment:
    if account is None:
        return Payment(state=PaymentState.ACCEPTED, amount_wei=amount_wei)
    root = next((root for root in account.roots if root.epoch >= epoch), None)
    if root is None:
        return Payment(state=PaymentState.WAITING_FOR_EARNINGS_ROOT, amount_wei=amount_wei)
    left = None if root.claimable_time is None else max(0, root.claimable_time - account.time)
    return Payment(state=_claim(root, account), amount_wei=amount_wei, claimable_in_seconds=left)


def _claim(root: Root, account: Account) -> PaymentState:
    """Claims are of all that was earned: a root is paid when they come up to it, less what cases withhold."""
    if not root.is_claimable(account.time):
        return PaymentState.CLAIMABLE_LATER
    if account.claimed_wei + account.withheld_wei < root.cumulative_wei:
        return PaymentState.CLAIMABLE
    return PaymentState.PAID if account.claimed_wei else PaymentState.WITHHELD
