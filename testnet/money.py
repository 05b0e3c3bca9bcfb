"""Claims at the end of a run: what is claimable is claimed for its owners, as anybody may do.

In: the coordinator's earnings statement that the chain has made claimable. Out: transactions.
"""

from __future__ import annotations

from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.client import CoordinatorClient
from protocol.merkle.standard import earnings_tree
from protocol.wire import ZERO_HASH


def claim_all(contracts: Contracts, lane: Lane, coordinator: CoordinatorClient, pool_id: int) -> int:
    """Claim for every account under the newest claimable root; how many claims were sent."""
    found = contracts.read("ledger", "claimableEarnings", pool_id)
    if found["earnings"]["root"] == ZERO_HASH:
        return 0
    epoch = found["epoch"]
    statement = coordinator.earnings(epoch)
    tree = earnings_tree({account.account: account.cumulative_wei for account in statement.accounts})
    num_claims = 0
    for number, (account, cumulative_wei) in enumerate(tree.rows):
        if contracts.read("ledger", "claimed", pool_id, account) < cumulative_wei:
            proof = tree.proof(number)
            contracts.send(lane, "ledger", "claim", pool_id, epoch, account, cumulative_wei, proof)
            num_claims += 1
    return num_claims
