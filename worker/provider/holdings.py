"""All that a provider has at stake, as the chain has it: nodes, their allotments, what is unbonding, what is held.

In: a `Wallet` and the block of the provider's beginnings. Out: `Holding`s, found by the Registry's events and read
from its state. Times are the chain's, in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.chain.contracts import Contracts, Read, abi_of
from protocol.chain.deployment import read_deployment
from worker.provider.config import ProviderConfig
from worker.provider.wallet import Wallet


@dataclass(frozen=True)
class Holding:
    """A node's stake in a pool. `release_time` is when what is unbonding is due; what cases hold stays."""

    node: str
    pool_id: int
    amount_wei: int
    unbonding_wei: int
    held_wei: int
    release_time: int
    num_open: int
    num_upheld: int

    @classmethod
    def of(cls, node: str, pool_id: int, found: dict[str, Any]) -> Holding:
        return cls(
            node=node,
            pool_id=pool_id,
            amount_wei=found["amount"],
            unbonding_wei=found["unbonding"],
            held_wei=found["held"],
            release_time=found["release_time"],
            num_open=found["num_open"],
            num_upheld=found["num_upheld"],
        )

    def releasable_wei(self, time: int) -> int:
        """What `Registry.release` would let go at `time`."""
        if time < self.release_time:
            return 0
        return min(self.unbonding_wei, self.amount_wei + self.unbonding_wei - self.held_wei)


@dataclass(frozen=True)
class Roster:
    """A provider's nodes, removed ones too, in the order in which they came; and what stands behind each, by pool."""

    nodes: Sequence[str]
    holdings: Sequence[Holding]


FEW_BLOCKS = 10_000
"""So many are read in some ten requests: nobody waits for that."""


def find_roster(wallet: Wallet, first_block: int) -> Roster:
    """Raises ChainError."""
    registry = wallet.contracts.address("registry")
    abi = abi_of("registry")
    topics = [
        [abi.topic("NodeAdded"), abi.topic("Allotted")],
        ["0x" + wallet.address.removeprefix("0x").rjust(64, "0")],
    ]
    client = wallet.contracts.client
    logs = client.logs([registry], first_block, client.head().number, topics)
    nodes, places = dict[str, None](), dict[tuple[str, int], None]()
    for log in logs:
        if (event := wallet.contracts.decode(log)) is None:
            continue
        nodes[event.arguments["node"]] = None
        if event.name == "Allotted":
            places[event.arguments["node"], event.arguments["pool_id"]] = None
    found = wallet.read_all(*(Read("registry", "allotmentOf", place) for place in places))
    holdings = [Holding.of(node, pool_id, one) for (node, pool_id), one in zip(places, found, strict=True)]
    return Roster(list(nodes), holdings)


def first_block_of(config: ProviderConfig, contracts: Contracts) -> int:
    """Where to look from: nothing of a deployment is in a block before it. The chain is asked where nothing says it."""
    if config.deployment is not None:
        return max(config.first_block, read_deployment(config.deployment).block)
    if config.first_block:
        return config.first_block
    client, head = contracts.client, contracts.client.head().number
    found = client.first_block_of_code(contracts.address("registry"), head)  # the others need it
    if found is None and head > FEW_BLOCKS:
        why = "the node has no state of the blocks in which the contracts were made, so the chain is read from block 0"
        print(f"{why}: set `first_block`, or give --deployment", file=sys.stderr)
    return found or 0
