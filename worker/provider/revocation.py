"""A node is sent away at once: by its provider, or by itself where its key may be known to others.

In: a node. Out: a plan with one call. Its allotments stay, and stay slashable, until they are unbonded.
"""

from __future__ import annotations

from protocol.chain.contracts import Read
from protocol.errors import NotEligible
from protocol.wire import ZERO_ADDRESS
from worker.provider.plan import Call, Plan
from worker.provider.registration import check_own
from worker.provider.wallet import Wallet


def plan_revoke(wallet: Wallet, node: str) -> Plan:
    """Raises NotEligible for another's node; nothing is to be done for one that is removed already."""
    owner, active_for = wallet.read_all(Read("registry", "ownerOf", (node,)), Read("registry", "providerOf", (node,)))
    if node != wallet.address:
        check_own(wallet, node)
    elif owner == ZERO_ADDRESS:
        raise NotEligible("this is nobody's node", node, "there is nothing to send away")
    if active_for == ZERO_ADDRESS:
        return Plan((), (), (f"{node} is removed already",))
    call = Call("registry", "removeNode", (node,), f"send the node {node} away")
    note = "it can lease and submit nothing from now on; `proofpool provider unstake` brings its stake back"
    return Plan((call,), (), (note,))
