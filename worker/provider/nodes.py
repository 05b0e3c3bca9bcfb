"""`proofpool provider nodes`: every node of a provider, what stands behind it, and whether it can be given work.

In: a `Wallet` and the block to look from. Out: `NodeList`. Needs no key: `--provider ADDRESS` says whose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.amount import format_amount
from protocol.chain.contracts import Read
from protocol.events import utc
from protocol.wire import Address, UInt64, Wei
from worker.provider.holdings import Holding, find_roster
from worker.provider.wallet import Wallet

State = Literal["eligible", "understaked", "pool_not_leasing", "removed"]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeStake(_Shape):
    """A node in a pool. `state`: whether it can be given a lease now, and if not why.

    `releasable_wei` of what is unbonding can be withdrawn now, the rest from `release_time` on (0: nothing ever was).
    `held_wei` of the two is frozen by open cases.
    """

    pool_id: UInt64
    state: State
    allotment_wei: Wei
    min_allotment_wei: Wei
    unbonding_wei: Wei
    releasable_wei: Wei
    release_time: UInt64
    held_wei: Wei
    num_open_cases: UInt64
    num_upheld_cases: UInt64


class ListedNode(_Shape):
    node: Address
    is_active: bool
    """Not removed: it may submit."""
    pools: tuple[NodeStake, ...]


class NodeList(_Shape):
    """The document of `provider nodes`, as of block `block`, at chain second `time`."""

    schema_version: Literal[1] = 1
    chain_id: UInt64
    block: UInt64
    time: UInt64
    provider: Address
    wallet_credits_wei: Wei
    free_stake_wei: Wei
    nodes: tuple[ListedNode, ...]


def list_nodes(wallet: Wallet, first_block: int) -> NodeList:
    """Raises ChainError."""
    head = wallet.contracts.client.head()
    roster = find_roster(wallet, first_block)
    pools = sorted({held.pool_id for held in roster.holdings})
    least = dict(zip(pools, wallet.read_all(*(Read("pools", "minAllotmentOf", (one,)) for one in pools)), strict=True))
    leasing = dict(zip(pools, wallet.read_all(*(Read("pools", "isLeasing", (one,)) for one in pools)), strict=True))
    owners = wallet.read_all(*(Read("registry", "providerOf", (node,)) for node in roster.nodes))
    active = {node: owner == wallet.address for node, owner in zip(roster.nodes, owners, strict=True)}
    credits_wei, free_wei = wallet.read_all(
        Read("credits", "balanceOf", (wallet.address,)), Read("registry", "freeStake", (wallet.address,))
    )

    def listed(held: Holding) -> NodeStake:
        return _stake(
            held, least[held.pool_id], head.timestamp, is_active=active[held.node], leases=leasing[held.pool_id]
        )

    return NodeList(
        chain_id=wallet.contracts.client.chain_id,
        block=head.number,
        time=head.timestamp,
        provider=wallet.address,
        wallet_credits_wei=credits_wei,
        free_stake_wei=free_wei,
        nodes=tuple(
            ListedNode(
                node=node,
                is_active=active[node],
                pools=tuple(listed(held) for held in roster.holdings if held.node == node),
            )
            for node in roster.nodes
        ),
    )


def _stake(held: Holding, least_wei: int, time: int, *, is_active: bool, leases: bool) -> NodeStake:
    return NodeStake(
        pool_id=held.pool_id,
        state=_state(held, least_wei, is_active=is_active, leases=leases),
        allotment_wei=held.amount_wei,
        min_allotment_wei=least_wei,
        unbonding_wei=held.unbonding_wei,
        releasable_wei=held.releasable_wei(time),
        release_time=held.release_time,
        held_wei=held.held_wei,
        num_open_cases=held.num_open,
        num_upheld_cases=held.num_upheld,
    )


def _state(held: Holding, least_wei: int, *, is_active: bool, leases: bool) -> State:
    if not is_active:
        return "removed"
    if held.amount_wei < least_wei:
        return "understaked"
    return "eligible" if leases else "pool_not_leasing"


def lines_of(found: NodeList) -> Iterator[str]:
    """For people."""
    yield f"provider {found.provider} on chain {found.chain_id}, block {found.block}"
    wallet, free = format_amount(found.wallet_credits_wei), format_amount(found.free_stake_wei)
    yield f"in the wallet {wallet} credits, free stake {free}"
    if not found.nodes:
        yield "no nodes: `proofpool provider register` takes the first one in"
    for node in found.nodes:
        yield f"{node.node}  {'active' if node.is_active else 'removed'}"
        for stake in node.pools:
            yield from _stake_lines(stake, found.time)


def _stake_lines(stake: NodeStake, time: int) -> Iterator[str]:
    least = format_amount(stake.min_allotment_wei)
    yield f"  pool {stake.pool_id}: {format_amount(stake.allotment_wei)} allotted (at least {least}), {stake.state}"
    if stake.unbonding_wei:
        left = stake.release_time - time
        due = "due now" if left <= 0 else f"due {utc(stake.release_time)}, in {left} s"
        yield f"    {format_amount(stake.unbonding_wei)} unbonding, {due}"
    if stake.num_open_cases or stake.num_upheld_cases:
        held = format_amount(stake.held_wei)
        yield f"    {held} held by {stake.num_open_cases} open cases; {stake.num_upheld_cases} cases were upheld"
