"""Two commands with one key: at once, after a kill, with a transaction that no block takes. Nothing is sent twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from protocol.clock import SystemClock
from protocol.signing import Signer
from testnet.chain.process import python_environment
from tests.integration.conftest import CREDIT, World
from tests.integration.test_promise_commands import Keys, keys
from tests.integration.test_provider_commands import NEWCOMER

__all__ = ["keys"]

pytestmark = pytest.mark.slow  # a process takes a second to start, and each waits for blocks

ADDRESS = Signer(NEWCOMER).address
GWEI = 10**9
CLOCK, NEVER = SystemClock(), threading.Event()


class Running:
    """A command in a process of its own."""

    def __init__(self, keys: Keys, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "protocol.cli", "provider", *arguments, *keys.options(NEWCOMER)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=python_environment(),
        )

    def says(self, text: str) -> None:
        """Wait until a line with this comes on stderr."""
        assert self._process.stderr is not None
        assert any(text in line for line in iter(self._process.stderr.readline, "")), "it has ended"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def end(self, meanwhile: Callable[[], None] = lambda: None) -> tuple[int, dict[str, Any], str]:
        """Exit code, document, and what came on stderr."""
        while self._process.poll() is None:
            meanwhile()
            CLOCK.wait(NEVER, 0.05)
        out, err = self._process.communicate()
        return self._process.returncode, json.loads(out) if out else {}, err


def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        CLOCK.wait(NEVER, 0.02)
    raise AssertionError("it doesn't come to hold")


@contextmanager
def no_blocks(world: World) -> Iterator[None]:
    """Blocks come when the test makes them."""
    world.contracts.client.rpc.call("evm_setAutomine", False)
    try:
        yield
    finally:
        world.contracts.client.rpc.call("evm_setAutomine", True)


@pytest.fixture
def funded(world: World) -> World:
    world.send(Signer(NEWCOMER), "credits", "faucet", 100 * CREDIT)
    return world


def free_stake(world: World) -> int:
    return int(world.read("registry", "freeStake", ADDRESS))


def sent(world: World, block: str = "pending") -> int:
    return world.contracts.client.transaction_count(ADDRESS, block)


def test_two_commands_at_once_go_through_one_after_the_other(funded: World, keys: Keys) -> None:
    before = sent(funded)
    with no_blocks(funded):
        first = Running(keys, "stake", "3")
        until(lambda: sent(funded) == before + 1)
        second = Running(keys, "stake", "5")
        second.says("waiting for another command that sends with this key")
        assert sent(funded) == before + 1, "the second waits"
        code, report, _ = first.end(funded.chain.mine)
        assert (code, len(report["transactions"])) == (0, 2)
        code, report, _ = second.end(funded.chain.mine)
    assert (code, len(report["transactions"])) == (0, 2)
    assert [change["before_wei"] for change in report["changes"]] == [str(97 * CREDIT), str(3 * CREDIT)]
    assert free_stake(funded) == 8 * CREDIT and sent(funded) == before + 4


def killed_and_stuck(world: World, keys: Keys, *arguments: str) -> None:
    """A command is killed -9 whose first transaction pays too little for the blocks that come."""
    before, rpc = sent(world), world.contracts.client.rpc
    command = Running(keys, *arguments)
    until(lambda: sent(world) == before + 1)
    command.kill()
    rpc.call("anvil_setNextBlockBaseFeePerGas", hex(50 * GWEI))
    world.chain.mine()
    assert sent(world, "latest") == before, "no block takes it"


def test_a_stuck_transaction_of_a_killed_command_is_sent_again_at_a_higher_fee_and_the_rest_follows(
    funded: World, keys: Keys
) -> None:
    if funded.chain.process.name != "anvil":
        pytest.skip("the base fee is set by anvil only")
    before = sent(funded)
    with no_blocks(funded):
        killed_and_stuck(funded, keys, "register", "--stake", "3")
        code, report, err = Running(keys, "register", "--stake", "3", "--resend-seconds", "0").end(funded.chain.mine)
    assert code == 0 and "an interrupted command had sent approve" in err
    assert [one["function"] for one in report["transactions"]] == ["stake"], "approved is approved"
    assert free_stake(funded) == 3 * CREDIT and sent(funded) == before + 2


def test_what_would_be_done_twice_waits_for_somebody_to_look(funded: World, keys: Keys) -> None:
    if funded.chain.process.name != "anvil":
        pytest.skip("the base fee is set by anvil only")
    funded.send(Signer(NEWCOMER), "credits", "approve", funded.contracts.addresses.registry, 100 * CREDIT)
    before = sent(funded)
    with no_blocks(funded):
        killed_and_stuck(funded, keys, "stake", "3")
        code, report, err = Running(keys, "stake", "3", "--resend-seconds", "0").end(funded.chain.mine)
    assert (code, report) == (1, {}) and "an earlier command was interrupted, and is finished now" in err
    assert free_stake(funded) == 3 * CREDIT and sent(funded) == before + 1
    assert Running(keys, "stake", "3").end()[0] == 0
    assert free_stake(funded) == 6 * CREDIT
