"""Calls that are run without being sent: together where the node can, else as far as one by one goes."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.chain.rpc import METHOD_NOT_FOUND
from protocol.chain.simulation import CallData, Simulated, simulate
from protocol.errors import ChainError, NodeRefused, TransactionReverted

SENDER, TO = "0x" + "11" * 20, "0x" + "22" * 20
CALLS = [CallData(TO, bytes([number])) for number in range(3)]
REFUSED = TransactionReverted("a contract refused: Late", "Late")


class FakeNode:
    """Answers `eth_simulateV1` with `answers`, or says that it has no such method; estimates by the call's data."""

    def __init__(self, answers: Any = None, estimates: tuple[int | Exception, ...] = ()) -> None:
        self._answers = answers
        self._estimates = estimates

    @property
    def rpc(self) -> FakeNode:
        return self

    def call(self, method: str, *params: Any) -> Any:
        if self._answers is None:
            raise NodeRefused(method, METHOD_NOT_FOUND, "method not found")
        if isinstance(self._answers, Exception):
            raise self._answers
        return self._answers

    def estimate_gas(self, sender: str, to: str | None, data: bytes, value_wei: int = 0) -> int:
        estimate = self._estimates[data[0]]
        if isinstance(estimate, Exception):
            raise estimate
        return estimate

    def explain(self, error: NodeRefused) -> ChainError:
        return REFUSED if error.data == "0x1234" else error


def simulated(node: FakeNode, calls: list[CallData] = CALLS) -> list[Simulated]:
    return simulate(node, SENDER, calls)  # type: ignore[arg-type]


def answer(gas: int, status: int = 1, data: str = "0x") -> dict[str, str]:
    return {"gasUsed": hex(gas), "status": hex(status), "returnData": data}


def test_a_node_that_runs_several_calls_tells_the_gas_of_each() -> None:
    node = FakeNode([{"calls": [answer(5), answer(6), answer(7)]}])
    assert simulated(node) == [Simulated(5), Simulated(6), Simulated(7)]


def test_the_first_refused_call_is_the_last_that_counts() -> None:
    node = FakeNode([{"calls": [answer(5), answer(6, 0, "0x1234"), answer(7, 0)]}])
    assert simulated(node) == [Simulated(5), Simulated(6, REFUSED)]


def test_one_by_one_only_the_first_calls_refusal_is_believed() -> None:
    assert simulated(FakeNode(None, (5, REFUSED, 7))) == [Simulated(5), Simulated(None), Simulated(7)]
    assert simulated(FakeNode(None, (REFUSED, 6, 7))) == [Simulated(None, REFUSED)]
    assert simulated(FakeNode([{"calls": []}], (4,)), CALLS[:1]) == [Simulated(4)], "one call is estimated"


@pytest.mark.parametrize("answers", [[], {}, "0x", [{"calls": [answer(5)]}], NodeRefused("m", -32000, "busy")])
def test_an_answer_that_is_none_is_an_error(answers: Any) -> None:
    with pytest.raises(ChainError):
        simulated(FakeNode(answers))
