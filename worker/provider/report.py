"""The document of a provider's command that sends: what was sent or would be, its cost, what it changes.

In: a plan, simulated or carried out. Out: `ProviderReport`, for `--json` and for people (`printing.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from protocol.wire import Address, Hash32, UInt64, Wei


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SentTransaction(_Shape):
    """A call of a contract. Without `transaction_hash` it isn't sent: `data` is what any wallet can send to `to`.

    `gas` is the node's estimate, or what was used; None where only an earlier one, once mined, makes an estimate
    possible. `cost_wei`, in coins, is at the present base fee, or what was paid; `most_cost_wei` the most it may be.
    """

    purpose: str
    contract: str
    to: Address
    function: str
    arguments: dict[str, Any]
    value_wei: Wei
    data: str
    gas: UInt64 | None
    cost_wei: Wei | None
    most_cost_wei: Wei | None
    transaction_hash: Hash32 | None = None
    block: UInt64 | None = None


class ChangedAmount(_Shape):
    """An amount before and after: `wallet_credits`, `free_stake`, or a node's `allotment` or `unbonding` in a pool."""

    name: str
    node: Address | None = None
    pool_id: UInt64 | None = None
    before_wei: Wei
    after_wei: Wei


class ProviderReport(_Shape):
    """The document of `provider register`, `authorize`, `stake`, `unstake`, `withdraw` and `revoke`.

    `due_time` is when what was begun ends, in chain seconds; None where nothing goes on.
    """

    schema_version: Literal[1] = 1
    command: str
    chain_id: UInt64
    provider: Address
    dry_run: bool
    transactions: tuple[SentTransaction, ...]
    changes: tuple[ChangedAmount, ...]
    due_time: UInt64 | None
    notes: tuple[str, ...]
