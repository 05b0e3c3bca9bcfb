"""`proofpool audit money`: what the log says was earned, what the ledger owes and has paid, to the wei.

In: the coordinator's log, its newest earnings statement on chain, the chain's contracts. Out: a `Report`. The log
is re-hashed up to the newest anchored head, so that the payments counted are the ones that the chain anchors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from protocol.api import EarningsStatement, LogEntry, PoolInfo
from protocol.chain.contracts import Contracts, Read
from protocol.client import CoordinatorClient
from protocol.merkle.history import MemoryLog
from protocol.merkle.standard import earnings_tree
from protocol.wire import ZERO_HASH
from verifier.audit.history import check_leaf
from verifier.audit.step import Report, StillOpen, Values, must_equal, must_hold, take_step


@dataclass(frozen=True)
class Books:
    """Both sides: the log's payments by account up to the earnings epoch and in all, and what the contracts say."""

    earned: Counter[str]
    earned_in_all: Counter[str]
    block: int
    size: int
    root: str
    head: tuple[int, str]
    statement: EarningsStatement | None
    root_on_chain: str
    total_wei: int
    claimed_wei: dict[str, int]
    paid_wei: int
    funds_wei: int
    balance_wei: int


def audit_money(client: CoordinatorClient, contracts: Contracts, pool: PoolInfo) -> Report:
    """Compare the log with the contracts."""
    books = read_books(client, contracts, pool.pool_id)
    checks = {
        "log": partial(check_log, books),
        "statement": partial(check_statement, books),
        "paid": partial(check_paid, books),
        "owed": partial(check_owed, books),
    }
    steps = tuple(take_step(name, check) for name, check in checks.items())
    anchor = f"chain {contracts.client.chain_id}, Ledger {contracts.addresses.ledger}"
    return Report(f"pool {pool.pool_id}", steps, anchor, f"block {books.block}, log of {books.size} leaves")


def read_books(client: CoordinatorClient, contracts: Contracts, pool_id: int) -> Books:
    """Everything that is compared. Reads the whole log up to the newest anchored head."""
    block = contracts.client.head().number
    ask = partial(contracts.read, block=block)  # one state, while claims go on
    head = ask("ledger", "head", pool_id)
    epoch, newest = ask("ledger", "newestEarnings", pool_id)
    statement = client.earnings(epoch) if newest["root"] != ZERO_HASH else None
    earnings_size = ask("ledger", "epochOf", pool_id, epoch)["size"] if statement else 0
    log, earned, in_all = MemoryLog(), Counter[str](), Counter[str]()
    for entry in _entries(client, head["size"]):
        log.append(check_leaf(entry))
        for account, amount in entry.event["data"].get("payments", ()):
            in_all[account] += int(amount)
            earned[account] += int(amount) if entry.index < earnings_size else 0
    record = ask("pools", "poolOf", pool_id)
    return Books(
        earned=+earned,
        earned_in_all=+in_all,
        block=block,
        size=log.size,
        root=log.root,
        head=(head["size"], head["root"]),
        statement=statement,
        root_on_chain=newest["root"],
        total_wei=newest["total"],
        claimed_wei=_claimed(contracts, pool_id, sorted(in_all), block),
        paid_wei=record["paid"],
        funds_wei=record["pool_funds"],
        balance_wei=ask("credits", "balanceOf", contracts.addresses.pools),
    )


def check_log(books: Books) -> Values:
    """The log that was read is the one that the chain anchors."""
    must_equal("the log isn't the one on chain", (books.size, books.root), books.head)
    return {"size": str(books.size), "root": books.root}


def check_statement(books: Books) -> Values:
    """The root on chain, and the coordinator's statement behind it, are over exactly the log's payments."""
    if books.statement is None:
        raise StillOpen("no earnings root is on chain yet")
    stated = {row.account: row.cumulative_wei for row in books.statement.accounts}
    must_equal("the coordinator states other earnings than the log", stated, dict(books.earned))
    must_equal("the earnings root isn't that of the log", books.root_on_chain, earnings_tree(books.earned).root)
    must_equal("the earnings total isn't that of the log", books.total_wei, books.earned.total())
    return {"epoch": str(books.statement.epoch), "root": books.root_on_chain, "total_wei": str(books.total_wei)}


def check_paid(books: Books) -> Values:
    """What the accounts have claimed is what the pool has paid, and nobody has more than he earned."""
    claimed = sum(books.claimed_wei.values())
    must_equal("claims and payments differ", claimed, books.paid_wei)
    for account, amount in books.claimed_wei.items():
        must_hold("an account has claimed more than it earned", amount <= books.earned[account], f"{account}: {amount}")
    return {"paid_wei": str(books.paid_wei)}


def check_owed(books: Books) -> Values:
    """What is earned and not paid is there: in the pool's funds, and in its contract's balance."""
    owed = books.earned_in_all.total() - books.paid_wei
    must_hold("the pool owes more than it has", owed <= books.funds_wei, f"owes {owed}, has {books.funds_wei}")
    must_hold("the contract lacks tokens", books.funds_wei <= books.balance_wei, f"balance {books.balance_wei}")
    return {"owed_wei": str(owed), "funds_wei": str(books.funds_wei), "earned_wei": str(books.earned_in_all.total())}


def _claimed(contracts: Contracts, pool_id: int, accounts: list[str], block: int) -> dict[str, int]:
    reads = [Read("ledger", "claimed", (pool_id, account)) for account in accounts]
    return dict(zip(accounts, contracts.read_all(reads, block=block), strict=True))


def _entries(client: CoordinatorClient, size: int) -> Iterator[LogEntry]:
    """Leaves below `size`; fewer where the coordinator holds some back, which `check_log` then finds."""
    for entry in client.all_entries():
        if entry.index >= size:
            return
        yield entry
