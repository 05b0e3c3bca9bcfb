"""Calls run one after the other without being sent: what each would cost, and which one a contract would refuse.

In: a sender and its calls, in order. Out: gas of each, and refusals with their decoded custom error. Nothing is signed.
One call is estimated by every node (`eth_estimateGas`); several, of which one builds on another, take a node with
`eth_simulateV1` (geth, anvil and others): without it the gas of what can't be run yet isn't known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.canonical import hex0x
from protocol.chain.block import number_in
from protocol.chain.client import ChainClient
from protocol.chain.rpc import METHOD_NOT_FOUND
from protocol.errors import ChainError, NodeRefused, TransactionReverted

SIMULATE = "eth_simulateV1"


@dataclass(frozen=True)
class CallData:
    """A call to a contract, encoded."""

    to: str
    data: bytes
    value_wei: int = 0


@dataclass(frozen=True)
class Simulated:
    """What one call would do. `gas` is None where it builds on one before it and the node runs only single calls."""

    gas: int | None
    refusal: TransactionReverted | None = None


def simulate(client: ChainClient, sender: str, calls: Sequence[CallData]) -> list[Simulated]:
    """Up to the first refused call. Raises ChainError where the node doesn't answer."""
    if len(calls) > 1:
        try:
            return _together(client, sender, calls)
        except NodeRefused as error:
            if error.code != METHOD_NOT_FOUND:
                raise
    return _one_by_one(client, sender, calls)


def _together(client: ChainClient, sender: str, calls: Sequence[CallData]) -> list[Simulated]:
    documents = [
        {"from": sender, "to": call.to, "data": hex0x(call.data), "value": hex(call.value_wei)} for call in calls
    ]
    blocks = client.rpc.call(SIMULATE, {"blockStateCalls": [{"calls": documents}], "validation": False}, "latest")
    try:
        answers = blocks[0]["calls"]
    except (TypeError, LookupError) as error:
        raise ChainError("the node's answer is no simulation", f"{blocks!r:.200}") from error
    found = list[Simulated]()
    for answer in answers:
        found.append(_answered(client, answer))
        if found[-1].refusal is not None:
            return found
    if len(found) != len(calls):
        raise ChainError("the node simulated another number of calls", f"{len(found)}, not {len(calls)}")
    return found


def _answered(client: ChainClient, answer: dict[str, Any]) -> Simulated:
    gas = number_in(answer, "gasUsed")
    if number_in(answer, "status") == 1:
        return Simulated(gas)
    message = str((answer.get("error") or {}).get("message", "execution reverted"))
    error = client.explain(NodeRefused(SIMULATE, 3, f"{message}: reverted", answer.get("returnData")))
    if not isinstance(error, TransactionReverted):
        raise error
    return Simulated(gas, error)


def _one_by_one(client: ChainClient, sender: str, calls: Sequence[CallData]) -> list[Simulated]:
    """Only the first stands on the chain's state as it is: what refuses a later one may be done by then."""
    found = list[Simulated]()
    for number, call in enumerate(calls):
        try:
            found.append(Simulated(client.estimate_gas(sender, call.to, call.data, call.value_wei)))
        except TransactionReverted as error:
            if number == 0:
                return [Simulated(None, error)]
            found.append(Simulated(None))
    return found
