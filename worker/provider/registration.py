"""A node is taken in, with the stake that stands behind its work: once for a newcomer, and for every further node.

In: a node's consent, a pool, an amount. Out: a plan with what is missing of deposit, `addNode` and `allot`: made again
after a kill, or for no reason, it holds only the rest.
"""

from __future__ import annotations

from protocol.amount import format_amount
from protocol.chain.contracts import Read
from protocol.errors import NotEligible
from protocol.wire import ZERO_ADDRESS
from worker.provider.consent import NodeConsent, check_usable
from worker.provider.plan import Call, Effect, Plan, allotted, deposit, free_stake, wallet_credits
from worker.provider.wallet import Wallet


def plan_deposit(wallet: Wallet, amount_wei: int) -> Plan:
    """See that at least so much stake is free. Without a node it backs nothing yet."""
    missing_wei = max(0, amount_wei - int(wallet.read("registry", "freeStake", wallet.address)))
    effects = (wallet_credits(wallet, -missing_wei), free_stake(wallet, missing_wei))
    done = () if missing_wei else (f"{format_amount(amount_wei)} credits are staked and free already",)
    return Plan(deposit(wallet, missing_wei), effects, done)


def plan_node(wallet: Wallet, consent: NodeConsent, pool_id: int | None, amount_wei: int | None) -> Plan:
    """See that the node is the provider's, with at least `amount_wei` (None: what the pool asks for) allotted to it.

    Without a pool it is taken in only. What the free stake lacks comes from the wallet.
    Raises NotEligible, VerificationFailed.
    """
    taking_in = _taking_in(wallet, consent)
    if pool_id is None:
        return Plan(taking_in, (), _notes(consent.node, taking_in))
    wanted_wei = _wanted(wallet, pool_id, amount_wei)
    have_wei, free_wei = wallet.read_all(
        Read("registry", "allotment", (consent.node, pool_id)), Read("registry", "freeStake", (wallet.address,))
    )
    more_wei = max(0, wanted_wei - have_wei)
    deposit_wei = max(0, more_wei - free_wei)
    calls = (*deposit(wallet, deposit_wei), *taking_in, *allotting(consent.node, pool_id, more_wei))
    effects = _effects(wallet, consent.node, pool_id, deposit_wei, more_wei)
    notes = (*_notes(consent.node, taking_in), *_enough_notes(consent.node, have_wei, amount_wei))
    return Plan(calls, effects, (*notes, *_short_notes(wallet, pool_id, max(have_wei, wanted_wei))))


def plan_stake(wallet: Wallet, node: str, pool_id: int, amount_wei: int) -> Plan:
    """Let so much more stand behind a node: free stake first, then credits of the wallet. Raises NotEligible."""
    check_own(wallet, node)
    if wallet.read("registry", "providerOf", node) != wallet.address:
        raise NotEligible("the node is removed", node, "`proofpool provider authorize` takes it in again")
    _check_open(wallet, pool_id)
    free_wei, have_wei = wallet.read_all(
        Read("registry", "freeStake", (wallet.address,)), Read("registry", "allotment", (node, pool_id))
    )
    deposit_wei = max(0, amount_wei - free_wei)
    calls = (*deposit(wallet, deposit_wei), *allotting(node, pool_id, amount_wei))
    effects = _effects(wallet, node, pool_id, deposit_wei, amount_wei)
    return Plan(calls, effects, _short_notes(wallet, pool_id, have_wei + amount_wei))


def plan_more_stake(wallet: Wallet, amount_wei: int) -> Plan:
    """Deposit so much more, for no node yet."""
    return Plan(deposit(wallet, amount_wei), (wallet_credits(wallet, -amount_wei), free_stake(wallet, amount_wei)))


def allotting(node: str, pool_id: int, amount_wei: int) -> tuple[Call, ...]:
    if not amount_wei:
        return ()
    words = f"let {format_amount(amount_wei)} credits stand behind {node} in pool {pool_id}"
    return (Call("registry", "allot", (node, pool_id, amount_wei), words),)


def check_own(wallet: Wallet, node: str) -> None:
    """Raises NotEligible for a node of somebody else's, or nobody's."""
    if (owner := wallet.read("registry", "ownerOf", node)) != wallet.address:
        whose = "nobody's" if owner == ZERO_ADDRESS else f"of {owner}"
        why = f"{node} is {whose}, this is {wallet.address}"
        raise NotEligible("the node isn't this provider's", why, "`proofpool provider nodes` lists yours")


def _taking_in(wallet: Wallet, consent: NodeConsent) -> tuple[Call, ...]:
    """Nothing where it is done: the consent was used then, by this command before it was killed for instance.

    Raises VerificationFailed for another deployment's all the same.
    """
    consent.check(wallet.contracts.registry_domain)
    if wallet.read("registry", "providerOf", consent.node) == wallet.address:
        return ()
    message = check_usable(consent, wallet)
    arguments = (message.node, message.nonce, message.deadline, consent.authorization.signature)
    return (Call("registry", "addNode", arguments, f"take {message.node} in as a node"),)


def _wanted(wallet: Wallet, pool_id: int, amount_wei: int | None) -> int:
    _check_open(wallet, pool_id)
    return int(wallet.read("pools", "minAllotmentOf", pool_id)) if amount_wei is None else amount_wei


def _check_open(wallet: Wallet, pool_id: int) -> None:
    """Said before a deposit is made for it. Raises NotEligible; TransactionReverted where there is no such pool."""
    wallet.read("pools", "poolOf", pool_id)
    if not wallet.read("pools", "isOpen", pool_id):
        raise NotEligible("the pool isn't open", f"pool {pool_id}", "`proofpool chain info` lists pools")


def _effects(wallet: Wallet, node: str, pool_id: int, deposit_wei: int, more_wei: int) -> tuple[Effect, ...]:
    return (
        wallet_credits(wallet, -deposit_wei),
        free_stake(wallet, deposit_wei - more_wei),
        allotted(node, pool_id, more_wei),
    )


def _notes(node: str, taking_in: tuple[Call, ...]) -> tuple[str, ...]:
    return () if taking_in else (f"{node} is this provider's node already",)


def _enough_notes(node: str, have_wei: int, amount_wei: int | None) -> tuple[str, ...]:
    """Nothing is allotted where so much stands behind the node already: that is said, with what adds and takes away."""
    if amount_wei is None or have_wei < amount_wei:
        return ()
    have, wanted = format_amount(have_wei), format_amount(amount_wei)
    how = "`proofpool provider stake` adds to it, `proofpool provider unstake` takes away"
    return (f"{have} credits stand behind {node} already, and {wanted} are asked for in all: {how}",)


def _short_notes(wallet: Wallet, pool_id: int, allotted_wei: int) -> tuple[str, ...]:
    least_wei = int(wallet.read("pools", "minAllotmentOf", pool_id))
    if allotted_wei >= least_wei:
        return ()
    least, short = format_amount(least_wei), format_amount(least_wei - allotted_wei)
    return (f"pool {pool_id} leases to nodes with at least {least} credits: {short} are missing",)
