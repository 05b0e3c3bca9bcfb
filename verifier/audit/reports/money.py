"""`proofpool audit money`: what the log says was earned, what the ledger owes and has paid, to the wei.

In: the coordinator's log and its statement behind the newest root, the chain's contracts. Out: a `MoneyReport`. The log
is re-hashed and held against every anchored head, and each payment in it must be earned (`verifier/payments.py`):
the same eyes with which a verifier looks at it before it attests.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from protocol.api import EarningsStatement, PoolInfo
from protocol.chain.contracts import Contracts, Read
from protocol.chain.pool import ChainPool, LogHead
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.wire import ZERO_HASH
from verifier.attest import payment_faults
from verifier.audit.step import Report, StillOpen, Values, must_equal, must_hold, take_step
from verifier.history import History
from verifier.reaudits import undue_reaudits

BEFORE_ALL = -1
AMOUNTS = ("earned_wei", "paid_wei", "withheld_wei", "owed_wei")
NUM_SHOWN = 20
"""Accounts that people are shown."""
CLOSING = 2
"""Pools.State.Closing"""


@dataclass(frozen=True)
class AccountBooks:
    """One account, in base units: what the log says it has earned, what it has claimed, what cases withhold."""

    account: str
    earned_wei: int
    paid_wei: int
    withheld_wei: int
    owed_wei: int
    """Withheld or not: whose that is in the end may still be open. Nothing, once claims have lapsed."""

    def as_json(self) -> dict[str, str]:
        amounts = (self.earned_wei, self.paid_wei, self.withheld_wei, self.owed_wei)
        return {"account": self.account} | dict(zip(AMOUNTS, map(str, amounts), strict=True))


@dataclass(frozen=True)
class MoneyReport(Report):
    """An audit of the money, and by account where it went, the largest earnings first."""

    accounts: tuple[AccountBooks, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"accounts": [one.as_json() for one in self.accounts]}

    def lines(self) -> Iterable[str]:
        for one in self.accounts[:NUM_SHOWN]:
            yield "  ".join(f"{name} {value}" for name, value in one.as_json().items())
        if (left := len(self.accounts) - NUM_SHOWN) > 0:
            yield f"and {left} more accounts: --json has all"
        yield from super().lines()


@dataclass(frozen=True)
class Books:
    """Both sides at one block: the log's payments (`history`), and what the contracts say."""

    history: History
    log_fault: VerificationFailed | None
    payment_faults: list[str]
    undue_reaudits: list[str]
    pool_id: int
    block: int
    head: tuple[int, str]
    num_epochs: int
    statement: EarningsStatement | None
    root_on_chain: str
    total_wei: int
    claimed_wei: dict[str, int]
    withheld_wei: dict[str, int]
    """By cases, of each account: held by open ones, or deducted for good."""
    paid_wei: int
    funds_wei: int
    balance_wei: int
    have_lapsed: bool
    """The pool is closed so long that what nobody claimed has gone back to its creator, or may."""

    @property
    def earned(self) -> dict[str, int]:
        """By account, up to the epoch of the newest root on chain."""
        if self.statement is None:
            return {}
        return {account: wei for account, wei in self.history.payments.earnings(self.statement.epoch).items() if wei}

    @property
    def earned_in_all(self) -> Counter[str]:
        """By account, up to the newest anchored head."""
        return Counter(self.history.payments.earnings(self.num_epochs))


def audit_money(client: CoordinatorClient, contracts: Contracts, pool: PoolInfo) -> MoneyReport:
    """Read both sides and compare them."""
    return audit_books(read_books(client, contracts, pool.pool_id), contracts)


def audit_books(books: Books, contracts: Contracts) -> MoneyReport:
    """Compare the log with the contracts."""
    checks = {
        "log": partial(check_log, books),
        "payments": partial(check_each_payment, books),
        "statement": partial(check_statement, books),
        "paid": partial(check_paid, books),
        "owed": partial(check_owed, books),
    }
    steps = tuple(take_step(name, check) for name, check in checks.items())
    anchor = f"chain {contracts.client.chain_id}, Ledger {contracts.addresses.ledger}"
    as_of = f"block {books.block}, log of {books.head[0]} leaves"
    return MoneyReport(f"pool {books.pool_id}", steps, anchor, as_of, _accounts(books))


def _accounts(books: Books) -> tuple[AccountBooks, ...]:
    def of(account: str, earned_wei: int) -> AccountBooks:
        paid_wei = books.claimed_wei[account]
        owed_wei = 0 if books.have_lapsed else max(0, earned_wei - paid_wei)
        return AccountBooks(account, earned_wei, paid_wei, books.withheld_wei[account], owed_wei)

    return tuple(of(account, earned_wei) for account, earned_wei in books.earned_in_all.most_common())


def read_books(client: CoordinatorClient, contracts: Contracts, pool_id: int, history: History | None = None) -> Books:
    """Everything that is compared. Reads the log up to the newest anchored head, or what `history` hasn't of it."""
    at = contracts.client.head()
    block = at.number
    ask = partial(contracts.read, block=block)  # one state, while claims go on
    head = ask("ledger", "head", pool_id)
    epoch, newest = ask("ledger", "newestEarnings", pool_id)
    record, config = ask("pools", "poolOf", pool_id), ask("pools", "configOf", pool_id)
    if history is None:
        history = History(sqlite3.connect(":memory:", isolation_level=None))
    heads = _heads(contracts, pool_id, head["count"], block)
    fault = _follow(history, client, [one for one in heads if one.epoch >= history.num_epochs])
    chain = ChainPool(contracts, pool_id)
    accounts = sorted(history.payments.earnings(head["count"]))
    return Books(
        history=history,
        log_fault=fault,
        payment_faults=payment_faults(head["count"], history.payments, chain, BEFORE_ALL),
        undue_reaudits=undue_reaudits(history.payments, chain, BEFORE_ALL, head["count"]),
        pool_id=pool_id,
        block=block,
        head=(head["size"], head["root"]),
        num_epochs=head["count"],
        statement=client.earnings(epoch) if newest["root"] != ZERO_HASH else None,
        root_on_chain=newest["root"],
        total_wei=newest["total"],
        claimed_wei=_by_account(contracts, "claimed", pool_id, accounts, block),
        withheld_wei=_by_account(contracts, "withheld", pool_id, accounts, block),
        paid_wei=record["paid"],
        funds_wei=record["pool_funds"],
        balance_wei=ask("credits", "balanceOf", contracts.addresses.pools),
        have_lapsed=record["state"] == CLOSING
        and at.timestamp >= _refund_time(config, record["closing_time"]) + ask("pools", "CLAIM_EXPIRY"),
    )


def check_log(books: Books) -> Values:
    """The log is the one that the chain anchors, epoch by epoch."""
    if books.log_fault is not None:
        raise books.log_fault
    must_equal("the log isn't the one on chain", books.history.size, books.head[0])
    return {"size": str(books.head[0]), "root": books.head[1], "epochs": str(books.num_epochs)}


def check_each_payment(books: Books) -> Values:
    """Every payment follows from a submission that was received and judged, at the prices of its lease.

    And every re-audit from a beacon. Prices and beacons as far back as the chain remembers the epochs.
    """
    must_hold("the log pays what isn't earned", not books.payment_faults, "; ".join(books.payment_faults))
    must_hold("there are re-audits that no beacon picked", not books.undue_reaudits, "; ".join(books.undue_reaudits))
    return {"accounts": str(len(books.earned_in_all)), "earned_wei": str(books.earned_in_all.total())}


def check_statement(books: Books) -> Values:
    """The root on chain, and the coordinator's statement behind it, are over exactly the log's payments."""
    if books.statement is None:
        raise StillOpen("no earnings root is on chain yet")
    stated = {row.account: row.cumulative_wei for row in books.statement.accounts}
    must_equal("the coordinator states other earnings than the log", stated, books.earned)
    must_equal("the earnings root isn't that of the log", books.root_on_chain, earnings_tree(books.earned).root)
    must_equal("the earnings total isn't that of the log", books.total_wei, sum(books.earned.values()))
    return {"epoch": str(books.statement.epoch), "root": books.root_on_chain, "total_wei": str(books.total_wei)}


def check_paid(books: Books) -> Values:
    """What the accounts have claimed is what the pool has paid, and nobody has more than he earned."""
    must_equal("claims and payments differ", sum(books.claimed_wei.values()), books.paid_wei)
    for account, amount in books.claimed_wei.items():
        earned = books.earned.get(account, 0)
        must_hold("an account has claimed more than it earned", amount <= earned, f"{account}: {amount} of {earned}")
    return {"paid_wei": str(books.paid_wei)}


def check_owed(books: Books) -> Values:
    """What is earned and not paid is there: in the pool's funds, and in its contract's balance.

    What cases withhold counts as owed: whose it is in the end may still be open. Claims that have lapsed don't.
    """
    unpaid = books.earned_in_all.total() - books.paid_wei
    owed = 0 if books.have_lapsed else unpaid
    must_hold("the pool owes more than it has", owed <= books.funds_wei, f"owes {owed}, has {books.funds_wei}")
    must_hold("the contract lacks tokens", books.funds_wei <= books.balance_wei, f"balance {books.balance_wei}")
    withheld = sum(books.withheld_wei.values())
    values = {"owed_wei": str(owed), "funds_wei": str(books.funds_wei), "withheld_wei": str(withheld)}
    return values | ({"lapsed_wei": str(unpaid)} if books.have_lapsed else {})


def _follow(history: History, client: CoordinatorClient, heads: list[LogHead]) -> VerificationFailed | None:
    """Take in the log up to the last head that it agrees with; where it first doesn't, why."""
    try:
        history.follow(heads, client.entries)
    except VerificationFailed as fault:
        return fault
    return None


def _heads(contracts: Contracts, pool_id: int, count: int, block: int) -> list[LogHead]:
    """Every head that the chain still has; what came before them is covered by the first."""
    start = max(0, count - int(contracts.read("ledger", "RING")))
    reads = [Read("ledger", "epochOf", (pool_id, epoch)) for epoch in range(start, count)]
    found = contracts.read_all(reads, block=block)
    return [LogHead(start + i, head["size"], head["root"]) for i, head in enumerate(found)]


def _by_account(contracts: Contracts, function: str, pool_id: int, accounts: list[str], block: int) -> dict[str, int]:
    reads = [Read("ledger", function, (pool_id, account)) for account in accounts]
    return dict(zip(accounts, contracts.read_all(reads, block=block), strict=True))


def _refund_time(config: Mapping[str, int], closing_time: int) -> int:
    """When a closed pool has drained (Pools._refundTime), in chain seconds."""
    windows = ("judge_period", "challenge_window", "appeal_period", "jury_period")
    leases = config["lease_max"] + config["epoch_max"] + config["coordinator_timeout"]
    return closing_time + leases + 2 * sum(config[name] for name in windows)
