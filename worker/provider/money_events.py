"""What the Ledger's events say of a pool's money: heads, earnings roots, an account's claims, and what cases withhold.

In: a `Wallet`, a pool, an account, the block to look from. Out: events in the chain's order, each with its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.chain.cases import CaseState
from protocol.chain.contracts import abi_of
from protocol.chain.pool import ChainPool
from worker.provider.wallet import Wallet

OF_POOL = ("EpochCommitted", "EarningsCommitted", "EarningsRevoked")
OF_ACCOUNT = ("Claimed", "EarningsHeld", "EarningsFreed", "EarningsDeducted")
WITHHOLDING = {"EarningsHeld": 1, "EarningsFreed": -1, "EarningsDeducted": 0}
"""What an event adds to what is withheld: what is deducted was held before, and stays."""


@dataclass(frozen=True)
class MoneyEvent:
    name: str
    block: int
    transaction_hash: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Withheld:
    """What a case keeps of an account's earnings: for good where it was upheld, else until it is over."""

    submission_id: str
    amount_wei: int
    state: CaseState
    deadline: int


def pool_events(wallet: Wallet, pool_id: int, first_block: int, last_block: int) -> list[MoneyEvent]:
    return _events(wallet, OF_POOL, [_word(pool_id)], first_block, last_block)


def account_events(wallet: Wallet, pool_id: int, account: str, first_block: int, last_block: int) -> list[MoneyEvent]:
    places = [_word(pool_id), _word(int(account, 16))]
    return _events(wallet, OF_ACCOUNT, places, first_block, last_block)


def withheld_by(wallet: Wallet, pool_id: int, events: Sequence[MoneyEvent]) -> list[Withheld]:
    """The cases that keep something back, by an account's events."""
    amounts: dict[str, int] = {}
    for event in events:
        if event.name in WITHHOLDING:
            submission_id = event.arguments["submission_id"]
            sign = WITHHOLDING[event.name]
            amounts[submission_id] = amounts.get(submission_id, 0) + sign * int(event.arguments["amount"])
    pool = ChainPool(wallet.contracts, pool_id)
    return [_withheld(pool, submission_id, amount) for submission_id, amount in amounts.items() if amount]


def _withheld(pool: ChainPool, submission_id: str, amount_wei: int) -> Withheld:
    case = pool.case_of(submission_id)
    jury = pool.jury_of(submission_id) if case.state.is_before_jury else None
    return Withheld(submission_id, amount_wei, case.state, case.deadline if jury is None else jury.deadline)


def _events(
    wallet: Wallet, names: Sequence[str], places: Sequence[str], first_block: int, last_block: int
) -> list[MoneyEvent]:
    abi, address = abi_of("ledger"), wallet.contracts.address("ledger")
    topics = [[abi.topic(name) for name in names], *([place] for place in places)]
    found = list[MoneyEvent]()
    for log in wallet.contracts.client.logs([address], first_block, last_block, topics):
        if (event := wallet.contracts.decode(log)) is not None:
            found.append(MoneyEvent(event.name, log.block_number, log.transaction_hash, event.arguments))
    return found


def _word(number: int) -> str:
    """An indexed value as a topic."""
    return f"0x{number:064x}"
