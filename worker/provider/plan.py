"""What a provider's command is going to send, and what that changes: made from the chain's state, before anything is.

In: a `Wallet` and what is wanted. Out: `Plan`: calls in order, and effects that can be read from the chain before and
after. What the contracts would refuse is found out while it is made, where there are words for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.amount import format_amount
from protocol.chain.contracts import Read, encode
from protocol.chain.simulation import CallData
from protocol.errors import NotEligible
from worker.provider.wallet import Wallet


@dataclass(frozen=True)
class Call:
    """A function of a contract; `purpose` says why, in the words of a to-do list."""

    contract: str
    function: str
    arguments: tuple[Any, ...]
    purpose: str

    def encoded(self, wallet: Wallet) -> CallData:
        return CallData(wallet.contracts.address(self.contract), encode(self.contract, self.function, *self.arguments))


@dataclass(frozen=True)
class Effect:
    """An amount on chain that the calls change. `member` picks it where the view answers with several."""

    name: str
    read: Read
    change_wei: int
    member: str | None = None
    node: str | None = None
    pool_id: int | None = None

    def value(self, answer: Any) -> int:
        return int(answer if self.member is None else answer[self.member])


@dataclass(frozen=True)
class Plan:
    """Nothing is to be done where there are no calls. `due_time`: when what is begun here ends, chain seconds."""

    calls: tuple[Call, ...]
    effects: tuple[Effect, ...]
    notes: tuple[str, ...] = ()
    due_time: int | None = None


def wallet_credits(wallet: Wallet, change_wei: int) -> Effect:
    return Effect("wallet_credits", Read("credits", "balanceOf", (wallet.address,)), change_wei)


def free_stake(wallet: Wallet, change_wei: int) -> Effect:
    return Effect("free_stake", Read("registry", "freeStake", (wallet.address,)), change_wei)


def allotted(node: str, pool_id: int, change_wei: int) -> Effect:
    read = Read("registry", "allotmentOf", (node, pool_id))
    return Effect("allotment", read, change_wei, "amount", node, pool_id)


def unbonding(node: str, pool_id: int, change_wei: int) -> Effect:
    read = Read("registry", "allotmentOf", (node, pool_id))
    return Effect("unbonding", read, change_wei, "unbonding", node, pool_id)


def faucet_command(wallet: Wallet) -> str:
    """To paste: on a test chain it fills the wallet."""
    contracts = wallet.contracts
    where = f"--chain {contracts.client.rpc.url} --ledger {contracts.addresses.ledger}"
    return f"proofpool chain faucet {wallet.address} {where}"


def deposit(wallet: Wallet, amount_wei: int) -> tuple[Call, ...]:
    """What brings credits of the wallet into the free stake. Raises NotEligible where there are too few."""
    if amount_wei == 0:
        return ()
    registry = wallet.contracts.address("registry")
    balance_wei, allowed_wei = wallet.read_all(
        Read("credits", "balanceOf", (wallet.address,)), Read("credits", "allowance", (wallet.address, registry))
    )
    words = format_amount(amount_wei)
    if balance_wei < amount_wei:
        why = f"{format_amount(balance_wei)} of {words} credits in {wallet.address}"
        todo = f"send credits there; on a test chain: `{faucet_command(wallet)}`"
        raise NotEligible("there are too few credits", why, todo)
    approve = Call("credits", "approve", (registry, amount_wei), f"let the Registry take {words} credits")
    stake = Call("registry", "stake", (amount_wei,), f"deposit {words} credits")
    return (approve, stake) if allowed_wei < amount_wei else (stake,)
