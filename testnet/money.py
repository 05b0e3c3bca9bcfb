"""Every wei of a run: what the ledger owes and has paid, against what the contracts say.

In: the coordinator's earnings statement and the chain. Out: `Money`. What is claimable by the end is
claimed for its owners, as anybody may do.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api import EarningsStatement
from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from testnet import profile


@dataclass(frozen=True)
class Money:
    """Amounts in base units: claimed so far, and proven by the newest root but not claimed yet."""

    paid_wei: int
    owed_wei: int


def claim_all(contracts: Contracts, lane: Lane, statement: EarningsStatement) -> None:
    """Claim what `statement` proves, once its root is claimable."""
    tree = earnings_tree({account.account: account.cumulative_wei for account in statement.accounts})
    for number, (account, cumulative_wei) in enumerate(tree.rows):
        if contracts.read("ledger", "claimed", statement.pool_id, account) < cumulative_wei:
            contracts.send(
                lane, "ledger", "claim", statement.pool_id, statement.epoch, account, cumulative_wei, tree.proof(number)
            )


def settle_accounts(contracts: Contracts, pool_id: int, statement: EarningsStatement | None) -> Money:
    """Raises VerificationFailed where a sum of the ledger differs from the contracts', by a single wei."""
    accounts = statement.accounts if statement else ()
    claimed = {a.account: contracts.read("ledger", "claimed", pool_id, a.account) for a in accounts}
    paid = sum(claimed.values())
    proven = contracts.read("ledger", "provenTotal", pool_id)
    total = statement.total_wei if statement else 0
    _equal("what the ledger owes in all and the newest root on chain", total, proven)
    _equal("the sum of all accounts and their total", sum(a.cumulative_wei for a in accounts), total)
    funds = contracts.read("pools", "funds", pool_id)
    _equal("the pool's funds and payments, and what it was funded with", funds + paid, profile.POOL_FUNDS)
    balance = contracts.read("credits", "balanceOf", contracts.address("pools"))
    _equal("the Pools contract's balance and its pool's funds", balance, funds)
    return Money(paid_wei=paid, owed_wei=proven - paid)


def _equal(what: str, ours: int, theirs: int) -> None:
    if ours != theirs:
        raise VerificationFailed(f"{what} differ", f"{ours} and {theirs} base units, {ours - theirs:+d}")
