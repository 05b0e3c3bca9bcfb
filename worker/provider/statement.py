"""`proofpool provider statement`: each credit with its submission, its verdicts and the transactions behind it.

In: a `PaidLog`, the Ledger's books, a period. Out: `ProviderStatement`: opening, lines, closing, and the balance over
all time, which adds up to what the contracts have; each difference is named, and ends the command with exit code 3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from protocol.wire import Address, Hash32, UInt64, Wei
from worker.provider.balance import Balance, ChainBooks, balance_of, differences, read_books
from worker.provider.money_events import MoneyEvent
from worker.provider.paid_log import Credit, PaidLog, PayingLog
from worker.provider.wallet import Wallet

Kind = Literal["credit", "claim", "held", "freed", "deducted"]
State = Literal["claimed", "claimable", "claimable_later", "waiting_for_root", "done"]
T = TypeVar("T")
_KINDS: dict[str, Kind] = {
    "Claimed": "claim",
    "EarningsHeld": "held",
    "EarningsFreed": "freed",
    "EarningsDeducted": "deducted",
}


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StatedVerdict(_Shape):
    """A verdict on the credited submission: `outcome` by `validator`, in the log's leaf `log_index`."""

    log_index: UInt64
    round: UInt64
    validator: Address
    outcome: str
    reason: str | None


class StatementLine(_Shape):
    """A credit of the log, or what the Ledger did: paid a claim, held, freed or deducted earnings for a case.

    A credit's `transaction_hash` is the claim that paid it, None until then; `anchor_transaction` put its leaf under
    the head of `epoch`, and `root_transaction` put it under the earnings root of `root_epoch`.
    """

    kind: Kind
    time: UInt64
    amount_wei: Wei
    state: State
    submission_id: Hash32 | None = None
    node: Address | None = None
    event: str | None = None
    units: UInt64 | None = None
    verdicts: tuple[StatedVerdict, ...] = ()
    log_index: UInt64 | None = None
    epoch: UInt64 | None = None
    anchor_transaction: Hash32 | None = None
    root_epoch: UInt64 | None = None
    root_transaction: Hash32 | None = None
    transaction_hash: Hash32 | None = None


class ProviderStatement(_Shape):
    """The document of `provider statement`. `opening_wei` and `closing_wei`: earned and not claimed, then.

    `earned_wei` and `claimed_wei` are the period's, from `from_time` to before `to_time` (None: open); `balance` is of
    all time, as of `block`.
    """

    schema_version: Literal[1] = 1
    chain_id: UInt64
    pool_id: UInt64
    token: Address
    provider: Address
    block: UInt64
    time: UInt64
    from_time: UInt64 | None
    to_time: UInt64 | None
    opening_wei: Wei
    earned_wei: Wei
    claimed_wei: Wei
    closing_wei: Wei
    lines: tuple[StatementLine, ...]
    balance: Balance
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Period:
    """From `start` to before `end`, chain seconds; None is open."""

    start: int | None = None
    end: int | None = None

    def has(self, time: int) -> bool:
        return not self.is_after(time) and (self.end is None or time < self.end)

    def is_after(self, time: int) -> bool:
        """Whether it begins later than `time`."""
        return self.start is not None and time < self.start


def make_statement(wallet: Wallet, pool_id: int, log: PayingLog, period: Period, first_block: int) -> ProviderStatement:
    """The chain is read first, so that the log reaches as far. Raises ChainError, ConfigError, VerificationFailed."""
    books = read_books(wallet, pool_id, first_block)
    paid = PaidLog.read(log, wallet.address)
    balance = balance_of(paid, books)
    lines = sorted([*_credits(paid, books), *_events(wallet, books)], key=lambda line: line.time)
    shown = [line for line in lines if period.has(line.time)]
    opening_wei = _unpaid([line for line in lines if period.is_after(line.time)])
    return ProviderStatement(
        chain_id=wallet.contracts.client.chain_id,
        pool_id=pool_id,
        token=wallet.read("pools", "configOf", pool_id)["token"],
        provider=wallet.address,
        block=books.block,
        time=books.time,
        from_time=period.start,
        to_time=period.end,
        opening_wei=opening_wei,
        earned_wei=_sum(shown, "credit"),
        claimed_wei=_sum(shown, "claim"),
        closing_wei=max(0, opening_wei + _sum(shown, "credit") - _sum(shown, "claim")),
        lines=tuple(shown),
        balance=balance,
        differences=tuple(differences(paid, books, balance)),
    )


def _credits(paid: PaidLog, books: ChainBooks) -> Iterator[StatementLine]:
    head_sizes = [int(head.arguments["size"]) for head in books.heads]
    root_sizes = [root.size for root in books.roots]
    reach = [int(claim.arguments["cumulative"]) for claim in books.claims]
    for credit in paid.credits:
        head = _first(books.heads, bisect_right(head_sizes, credit.index))
        root = _first(books.roots, bisect_right(root_sizes, credit.index))
        claim = next((one for one, most in zip(books.claims, reach, strict=True) if most >= credit.total_wei), None)
        yield StatementLine(
            kind="credit",
            time=credit.time,
            amount_wei=credit.amount_wei,
            state=_state(credit, books, claim, has_root=root is not None),
            submission_id=credit.submission_id,
            node=credit.node,
            event=credit.event,
            units=credit.units,
            verdicts=_verdicts(paid, credit),
            log_index=credit.index,
            epoch=None if head is None else head.arguments["epoch"],
            anchor_transaction=None if head is None else head.transaction_hash,
            root_epoch=None if root is None else root.epoch,
            root_transaction=None if root is None else root.transaction_hash,
            transaction_hash=None if claim is None else claim.transaction_hash,
        )


def _state(credit: Credit, books: ChainBooks, claim: MoneyEvent | None, *, has_root: bool) -> State:
    if claim is not None:
        return "claimed"
    if not has_root:
        return "waiting_for_root"
    is_due = any(root.is_claimable and root.size > credit.index for root in books.roots)
    return "claimable" if is_due else "claimable_later"


def _verdicts(paid: PaidLog, credit: Credit) -> tuple[StatedVerdict, ...]:
    return tuple(
        StatedVerdict(
            log_index=one.index, round=one.round, validator=one.validator, outcome=one.outcome, reason=one.reason
        )
        for one in paid.verdicts.get(credit.submission_id, ())
    )


def _events(wallet: Wallet, books: ChainBooks) -> Iterator[StatementLine]:
    client = wallet.contracts.client
    for event in books.events:
        block = client.block(event.block)
        yield StatementLine(
            kind=_KINDS[event.name],
            time=books.time if block is None else block.timestamp,
            amount_wei=event.arguments["amount"],
            state="done",
            submission_id=event.arguments.get("submission_id"),
            transaction_hash=event.transaction_hash,
        )


def _first(items: Sequence[T], place: int) -> T | None:
    return items[place] if place < len(items) else None


def _sum(lines: Sequence[StatementLine], kind: Kind) -> int:
    return sum(line.amount_wei for line in lines if line.kind == kind)


def _unpaid(lines: Sequence[StatementLine]) -> int:
    return max(0, _sum(lines, "credit") - _sum(lines, "claim"))
