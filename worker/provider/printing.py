"""A provider's report for people: amounts in credits, times in UTC, ids whole so that they can be copied.

In: `ProviderReport`. Out: lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.amount import format_amount
from protocol.events import utc
from worker.provider.report import ChangedAmount, ProviderReport, SentTransaction

LABELS = {
    "wallet_credits": "credits in the wallet",
    "free_stake": "free stake",
    "allotment": "allotted",
    "unbonding": "unbonding",
    "claimed": "claimed from the pool",
}


def lines_of(report: ProviderReport, *, were_shown: bool = False) -> Iterator[str]:
    """The transactions, then what changes, then what else there is to know.

    `were_shown`: the reader has just confirmed the transactions, and is only told what became of them.
    """
    count = len(report.transactions)
    what = "no transaction" if not count else f"{count} transaction{'s' if count > 1 else ''}"
    yield f"{'would send' if report.dry_run else 'sent'} {what} of {report.provider} on chain {report.chain_id}"
    for number, transaction in enumerate(report.transactions, 1):
        yield from _became(number, transaction) if were_shown else _transaction(number, transaction)
    for change in report.changes:
        yield f"{_label(change):<34} {format_amount(change.before_wei)} -> {format_amount(change.after_wei)}"
    if report.due_time is not None:
        yield f"{'due':<34} {utc(report.due_time)}"
    yield from report.notes


def _transaction(number: int, transaction: SentTransaction) -> Iterator[str]:
    yield f"  {number}. {transaction.purpose}"
    arguments = ", ".join(f"{name}={_short(value)}" for name, value in transaction.arguments.items())
    yield f"     {transaction.function}({arguments}) to {transaction.contract} {transaction.to}, value 0"
    if transaction.transaction_hash is not None:
        yield f"     {_mined(transaction)}"
    elif transaction.gas is None or transaction.cost_wei is None or transaction.most_cost_wei is None:
        yield "     gas: known once the one before it is mined"
    else:
        most = format_amount(transaction.most_cost_wei)
        yield f"     gas {transaction.gas}, about {format_amount(transaction.cost_wei)} coins, at most {most}"


def _became(number: int, transaction: SentTransaction) -> Iterator[str]:
    yield f"  {number}. {_mined(transaction)}"


def _mined(transaction: SentTransaction) -> str:
    cost = "" if transaction.cost_wei is None else f", cost {format_amount(transaction.cost_wei)} coins"
    return f"{transaction.transaction_hash} in block {transaction.block}, gas {transaction.gas}{cost}"


def _short(value: object) -> str:
    """Long bytes by both ends: `--json` has them whole."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:20]}…{text[-8:]}"


def _label(change: ChangedAmount) -> str:
    label = LABELS[change.name]
    if change.node is not None:
        label += f" to {change.node[:8]}… in pool {change.pool_id}"
    elif change.pool_id is not None:
        label += f" {change.pool_id}"
    return label
