"""The two sides of a provider's account held against each other: what the log pays, and what the contracts say.

    log: credits ── sums over all accounts ──▶ the earnings root on chain?
    chain: claimed + withheld + claimable + claimable later + not yet in a root  =  earned?

In: a `PaidLog` and the Ledger at one block. Out: `Balance`, and every difference in words: none where all is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from protocol.chain.pool import ChainPool
from protocol.errors import ConfigError
from protocol.merkle.standard import earnings_tree
from protocol.wire import Wei
from worker.provider.money_events import WITHHOLDING, MoneyEvent, account_events, pool_events
from worker.provider.paid_log import PaidLog
from worker.provider.wallet import Wallet


class Balance(BaseModel):
    """All that was ever earned (`earned_wei`), and where it is: the other five amounts add up to it.

    `owing_wei` is what cases withhold beyond what is earned so far: it comes off later earnings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    earned_wei: Wei
    claimed_wei: Wei
    withheld_wei: Wei
    claimable_wei: Wei
    claimable_later_wei: Wei
    waiting_for_root_wei: Wei
    owing_wei: Wei


@dataclass(frozen=True)
class Root:
    """An earnings root that stands, over the first `size` leaves."""

    epoch: int
    size: int
    root: str
    total_wei: int
    transaction_hash: str
    is_claimable: bool


@dataclass(frozen=True)
class ChainBooks:
    """The Ledger's side, as of `block`."""

    block: int
    time: int
    claimed_wei: int
    withheld_wei: int
    heads: Sequence[MoneyEvent]
    """`EpochCommitted`, in order."""
    roots: Sequence[Root]
    events: Sequence[MoneyEvent]
    """Of the account."""

    def total_wei(self, name: str) -> int:
        return sum(int(event.arguments["amount"]) for event in self.events if event.name == name)

    @property
    def claims(self) -> Sequence[MoneyEvent]:
        return [event for event in self.events if event.name == "Claimed"]


def read_books(wallet: Wallet, pool_id: int, first_block: int) -> ChainBooks:
    """Raises ConfigError where the pool is older than `first_block`, ChainError."""
    head = wallet.contracts.client.head()
    of_pool = pool_events(wallet, pool_id, first_block, head.number)
    heads = [event for event in of_pool if event.name == "EpochCommitted"]
    if heads and heads[0].arguments["epoch"] != 0:
        why = f"the first epoch from block {first_block} on is {heads[0].arguments['epoch']}"
        raise ConfigError("the pool is older than the block to look from", why, "set `first_block` lower")
    read = wallet.contracts.read
    return ChainBooks(
        block=head.number,
        time=head.timestamp,
        claimed_wei=read("ledger", "claimed", pool_id, wallet.address, block=head.number),
        withheld_wei=read("ledger", "withheld", pool_id, wallet.address, block=head.number),
        heads=heads,
        roots=list(_roots(wallet, pool_id, of_pool, head.timestamp)),
        events=account_events(wallet, pool_id, wallet.address, first_block, head.number),
    )


def balance_of(paid: PaidLog, books: ChainBooks) -> Balance:
    """Where the earnings are."""
    earned = paid.credits[-1].total_wei if paid.credits else 0
    proven = paid.own_wei(books.roots[-1].size) if books.roots else 0
    claimable_root = next((root for root in reversed(books.roots) if root.is_claimable), None)
    claimable_total = paid.own_wei(claimable_root.size) if claimable_root else 0
    unclaimed = max(0, proven - books.claimed_wei)
    withheld = min(books.withheld_wei, unclaimed)
    claimable = max(0, claimable_total - books.claimed_wei - books.withheld_wei)
    return Balance(
        earned_wei=earned,
        claimed_wei=books.claimed_wei,
        withheld_wei=withheld,
        claimable_wei=claimable,
        claimable_later_wei=unclaimed - withheld - claimable,
        waiting_for_root_wei=earned - proven,
        owing_wei=books.withheld_wei - withheld,
    )


def differences(paid: PaidLog, books: ChainBooks, balance: Balance) -> Iterator[str]:
    """Every way in which log and contracts contradict each other, with both amounts in wei."""
    if books.roots:
        yield from _of_root(paid, books.roots[-1])
    claimed = books.total_wei("Claimed")
    if claimed != books.claimed_wei:
        yield f"the Ledger says {books.claimed_wei} wei are claimed, its events add up to {claimed}"
    withheld = sum(sign * books.total_wei(name) for name, sign in WITHHOLDING.items())
    if withheld != books.withheld_wei:
        yield f"the Ledger withholds {books.withheld_wei} wei, its events add up to {withheld}"
    proven = {paid.own_wei(root.size) for root in books.roots}
    for claim in books.claims:
        if (cumulative := int(claim.arguments["cumulative"])) not in proven:
            yield f"claim {claim.transaction_hash} is by {cumulative} wei of earnings, which the log has at no root"
    parts = balance.claimed_wei + balance.withheld_wei + balance.claimable_wei
    parts += balance.claimable_later_wei + balance.waiting_for_root_wei
    if parts != balance.earned_wei:
        yield f"the log pays {balance.earned_wei} wei, the contracts account for {parts}"


def _of_root(paid: PaidLog, root: Root) -> Iterator[str]:
    earned = paid.earned_wei(root.size)
    found = earnings_tree(earned).root if earned else "none"
    if (found, total := sum(earned.values())) != (root.root, root.total_wei):
        yield (
            f"the earnings root of epoch {root.epoch} isn't over the log's payments: on chain {root.root} over"
            f" {root.total_wei} wei, by the log {found} over {total}"
        )


def _roots(wallet: Wallet, pool_id: int, events: Sequence[MoneyEvent], time: int) -> Iterator[Root]:
    """Those that weren't revoked, oldest first."""
    standing = dict[int, MoneyEvent]()
    sizes = {e.arguments["epoch"]: int(e.arguments["size"]) for e in events if e.name == "EpochCommitted"}
    for event in events:
        if event.name == "EarningsCommitted":
            standing[event.arguments["epoch"]] = event
        elif event.name == "EarningsRevoked":
            standing.pop(event.arguments["epoch"], None)
    due = {
        record.epoch
        for record in ChainPool(wallet.contracts, pool_id).earnings_since(0)
        if record.claimable_time is not None and record.claimable_time <= time
    }
    for epoch, event in sorted(standing.items()):
        found = event.arguments
        is_old = epoch < min(due, default=0)  # before the roots that were asked about: claimable long since
        yield Root(epoch, sizes[epoch], found["root"], found["total"], event.transaction_hash, is_old or epoch in due)
