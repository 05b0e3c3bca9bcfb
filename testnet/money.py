"""Claims at the end of a run: what is claimable is claimed for its owners, as anybody may do.

In: the coordinator's earnings statement that the chain has made claimable. Out: transactions, all in one block where
it has room.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.chain.contracts import Contracts, Read, encode
from protocol.client import CoordinatorClient
from protocol.clock import Clock
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer
from protocol.wire import ZERO_HASH
from testnet.transactions import Call, send_together


def claim_all(contracts: Contracts, sender: Signer, clock: Clock, coordinator: CoordinatorClient, pool_id: int) -> int:
    """Claim for every account under the newest claimable root; how many claims were sent."""
    return len(send_together(contracts.client, clock, _claims(contracts, sender, coordinator, pool_id)))


def _claims(contracts: Contracts, sender: Signer, coordinator: CoordinatorClient, pool_id: int) -> Iterator[Call]:
    found = contracts.read("ledger", "claimableEarnings", pool_id)
    if found["earnings"]["root"] == ZERO_HASH:
        return
    epoch = found["epoch"]
    tree = earnings_tree({row.account: row.cumulative_wei for row in coordinator.earnings(epoch).accounts})
    claimed = contracts.read_all([Read("ledger", "claimed", (pool_id, account)) for account, _ in tree.rows])
    for number, (account, cumulative_wei) in enumerate(tree.rows):
        if claimed[number] < cumulative_wei:
            data = encode("ledger", "claim", pool_id, epoch, account, cumulative_wei, tree.proof(number))
            yield Call(sender, contracts.address("ledger"), data)
