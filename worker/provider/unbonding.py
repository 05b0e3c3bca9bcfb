"""Stake on its way back: from a node to unbonding, from unbonding to free, from free to the wallet.

    allotted ─ unstake ─▶ unbonding ─ (lease_max + unbonding seconds) ─▶ withdraw ─▶ credits in the wallet

In: a node, a pool, an amount; or what is due of everything. Out: plans that say when the rest is due.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.amount import format_amount
from protocol.chain.contracts import Read
from protocol.errors import NotEligible
from protocol.events import utc
from worker.provider.holdings import Holding
from worker.provider.plan import Call, Plan, allotted, free_stake, unbonding, wallet_credits
from worker.provider.registration import check_own
from worker.provider.wallet import Wallet


def plan_unstake(wallet: Wallet, node: str, pool_id: int, amount_wei: int | None) -> Plan:
    """Start the unbonding of so much (None: of all) of a node's allotment. Raises NotEligible."""
    check_own(wallet, node)
    allotment, config, seconds = wallet.read_all(
        Read("registry", "allotmentOf", (node, pool_id)),
        Read("pools", "configOf", (pool_id,)),
        Read("registry", "unbonding"),
    )
    held, time = Holding.of(node, pool_id, allotment), wallet.time()
    amount_wei = held.amount_wei if amount_wei is None else amount_wei
    if amount_wei == 0 or amount_wei > held.amount_wei:
        why = f"{format_amount(held.amount_wei)} credits are allotted to {node} in pool {pool_id}"
        raise NotEligible("there isn't that much to unbond", why, "`proofpool provider nodes` shows all of it")
    released_wei = held.releasable_wei(time)
    due = time + config["lease_max"] + seconds
    words = f"start the unbonding of {format_amount(amount_wei)} credits of {node} in pool {pool_id}"
    return Plan(
        calls=(Call("registry", "deallot", (node, pool_id, amount_wei), words),),
        effects=(
            allotted(node, pool_id, -amount_wei),
            unbonding(node, pool_id, amount_wei - released_wei),
            free_stake(wallet, released_wei),
        ),
        notes=tuple(_unstake_notes(held, amount_wei, config["min_allotment"], released_wei)),
        due_time=due,
    )


def plan_withdraw(wallet: Wallet, holdings: Sequence[Holding], amount_wei: int | None) -> Plan:
    """Let go what is due, and move so much (None: all) of the free stake to the wallet. Raises NotEligible."""
    time, free_wei = wallet.time(), int(wallet.read("registry", "freeStake", wallet.address))
    due = [held for held in holdings if held.releasable_wei(time)]
    total_wei = free_wei + sum(held.releasable_wei(time) for held in due)
    moved_wei = total_wei if amount_wei is None else amount_wei
    later = [line for held in holdings if (line := _later(held, time))]
    if moved_wei == 0 or moved_wei > total_wei:
        why = "; ".join([f"{format_amount(total_wei)} credits are due", *later])
        todo = "wait until more is due" if later else "`proofpool provider unstake` starts the unbonding"
        raise NotEligible("there isn't that much to withdraw", why, todo)
    releases = tuple(Call("registry", "release", (held.node, held.pool_id), _release_words(held, time)) for held in due)
    return Plan(
        calls=(*releases, Call("registry", "withdraw", (moved_wei,), f"withdraw {format_amount(moved_wei)} credits")),
        effects=(
            *(unbonding(held.node, held.pool_id, -held.releasable_wei(time)) for held in due),
            free_stake(wallet, total_wei - free_wei - moved_wei),
            wallet_credits(wallet, moved_wei),
        ),
        notes=tuple(later),
        due_time=min((h.release_time for h in holdings if h.unbonding_wei and h.release_time > time), default=None),
    )


def _release_words(held: Holding, time: int) -> str:
    return f"let go {format_amount(held.releasable_wei(time))} credits of {held.node} in pool {held.pool_id}"


def _unstake_notes(held: Holding, amount_wei: int, least_wei: int, released_wei: int) -> list[str]:
    notes = []
    if held.amount_wei >= least_wei > held.amount_wei - amount_wei:
        notes.append(f"the node gets no more leases: the pool asks for {format_amount(least_wei)} credits")
    if waiting_wei := held.unbonding_wei - released_wei:
        notes.append(f"{format_amount(waiting_wei)} credits that are unbonding already wait along until then")
    if held.held_wei:
        notes.append(
            f"{format_amount(held.held_wei)} credits are held by {held.num_open} open cases, wherever they are"
        )
    notes.append("until it is due, a slash still reaches it")
    return notes


def _later(held: Holding, time: int) -> str:
    """What of it is still to come, and when; empty where nothing is."""
    if not (rest_wei := held.unbonding_wei - held.releasable_wei(time)):
        return ""
    whose = f"{format_amount(rest_wei)} credits of {held.node} in pool {held.pool_id}"
    if time < held.release_time:
        return f"{whose} are unbonding until {utc(held.release_time)}, {held.release_time - time} s from now"
    return f"{whose} are held by {held.num_open} open cases"
