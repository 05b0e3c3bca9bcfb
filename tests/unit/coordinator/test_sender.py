"""The nonce lane against a chain that forgets, delays and is killed: each call's effect once, and in order."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select
from structlog.testing import capture_logs

from coordinator.blobs import BlobStore
from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator, Deployment
from coordinator.db.engine import open_engine
from coordinator.db.log import Outbox
from coordinator.outbox import CallState, queue_call
from coordinator.sender import RESEND_SECONDS, send_outbox
from protocol.api import ContractAddresses
from protocol.canonical import from_hex0x
from protocol.chain.block import Block, Receipt
from protocol.chain.transaction import Transaction
from protocol.errors import NodeRefused, TransactionReverted
from protocol.signing import Signer, SigningDomain
from tests.unit.coordinator.conftest import StandingClock, number_hash

LEDGER = "0x" + "11" * 20


class Killed(BaseException):
    """The process ends here."""


@dataclass
class FakeChain:
    """A node and one contract that takes epochs strictly in order; both halves of `Contracts` that the lane uses."""

    chain_id: int = 31337
    epochs: list[int] = field(default_factory=list)
    nonce: int = 0
    pending: dict[int, tuple[str, Transaction]] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    kill: str = ""
    gas: dict[bytes, int] = field(default_factory=dict)
    """What a call takes by the node's estimate, by its data."""

    @property
    def client(self) -> FakeChain:
        return self

    def address(self, name: str) -> str:
        return LEDGER

    def read(self, contract: str, function: str, *arguments: Any, block: int | str) -> int:
        assert (contract, function) == ("ledger", "epochCount")
        return len(self.epochs)

    def head(self) -> Block:
        return Block(len(self.receipts), number_hash(0), number_hash(0), 0, 10**9, gas_limit=30_000_000)

    def estimate_gas(self, sender: str, to: str, data: bytes) -> int:
        if data[0] != len(self.epochs):
            raise TransactionReverted("a contract refused", "EpochOutOfOrder")
        return self.gas.get(data, 50_000)

    def transaction_count(self, address: str) -> int:
        return self.nonce

    def receipt(self, transaction_hash: str) -> Receipt | None:
        return self.receipts.get(transaction_hash)

    def send_raw(self, raw: str) -> str:
        if self.kill == "before":
            self._die()
        call = Transaction.parse(from_hex0x(raw))
        if call.nonce < self.nonce:
            raise NodeRefused("eth_sendRawTransaction", -32000, "nonce too low")
        known = self.pending.get(call.nonce)
        if known is not None and known[1].max_fee_wei * 9 // 8 > call.max_fee_wei:
            raise NodeRefused("eth_sendRawTransaction", -32000, "replacement transaction underpriced")
        name = call.sign(KEY).transaction_hash
        self.pending[call.nonce] = (name, call)
        if self.kill == "after":
            self._die()
        return name

    def mine(self) -> None:
        while (found := self.pending.pop(self.nonce, None)) is not None:
            name, call = found
            self.nonce += 1
            succeeded = call.data[0] == len(self.epochs)
            if succeeded:
                self.epochs.append(call.data[0])
            self.receipts[name] = Receipt(name, len(self.receipts) + 1, number_hash(1), succeeded, 1, None, ())

    def _die(self) -> NoReturn:
        self.kill = ""
        raise Killed


KEY = Signer((1).to_bytes(32, "big"))
ACTIONS = st.sampled_from(
    ["turn", "turn", "mine", "queue", "wait", "forget", "kill before sending", "kill after sending", "somebody else"]
)


def make_coordinator(folder: Path, database: Path, chain: FakeChain) -> Coordinator:
    shutil.copy(database, folder / "coordinator.sqlite")
    config = CoordinatorConfig(
        chain_url="http://chain.test", pool_id=1, ledger=LEDGER, keystore=folder / "none.json", data_dir=folder
    )
    engine = open_engine(config.resolved_database_url)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    addresses = ContractAddresses(
        credits=LEDGER, registry=LEDGER, pools=LEDGER, ledger=LEDGER, court=LEDGER, jury=LEDGER
    )
    return Coordinator(
        config,
        engine=engine,
        blobs=BlobStore(folder),
        deployment=Deployment(SigningDomain(31337, LEDGER, number_hash(2)), addresses),
        signer=KEY,
        clock=StandingClock(),
        chain=chain,  # type: ignore[arg-type]
    )


def act(coordinator: Coordinator, chain: FakeChain, action: str, num_queued: int) -> int:
    """One thing that happens; how many calls are queued by now."""
    if action == "queue":
        with coordinator.writing() as session:
            queue_call(session, f"epoch:{num_queued}", "ledger", bytes([num_queued]))
        return num_queued + 1
    if action == "mine":
        chain.mine()
    elif action == "wait":
        coordinator.clock.wait(threading.Event(), RESEND_SECONDS)
    elif action == "forget":
        chain.pending.clear()
    elif action == "somebody else":
        if len(chain.epochs) < num_queued:
            chain.epochs.append(len(chain.epochs))
    else:
        chain.kill = {"kill before sending": "before", "kill after sending": "after"}.get(action, "")
        with contextlib.suppress(Killed):  # the next process has only the database
            send_outbox(coordinator)
        chain.kill = ""
    return num_queued


@pytest.fixture(scope="module")
def database(empty_database: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("database") / "empty.sqlite"
    file.write_bytes(empty_database)
    return file


@settings(max_examples=40, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=30))
def test_every_call_has_its_effect_once_and_in_order(database: Path, actions: list[str]) -> None:
    chain = FakeChain()
    with tempfile.TemporaryDirectory() as folder:
        coordinator = make_coordinator(Path(folder), database, chain)
        num_queued = 0
        for action in actions:
            num_queued = act(coordinator, chain, action, num_queued)
            assert chain.epochs == list(range(len(chain.epochs)))
        for _ in range(3 * num_queued + 3):
            for action in ("turn", "mine", "wait"):
                act(coordinator, chain, action, num_queued)
        assert chain.epochs == list(range(num_queued))
        assert states(coordinator) == [CallState.MINED] * num_queued
        coordinator.engine.dispose()


def test_what_no_block_takes_is_not_signed_and_holds_no_other_call_up(database: Path, tmp_path: Path) -> None:
    """The second call is the first one in other bytes, so that the contract takes it now."""
    first, second = b"\x00", b"\x00\x01"
    chain = FakeChain(gas={first: 30_000_000})
    coordinator = make_coordinator(tmp_path, database, chain)
    with coordinator.writing() as session:
        queue_call(session, "epoch:0", "ledger", first)
        queue_call(session, "epoch:1", "ledger", second)
    with capture_logs() as lines:
        send_outbox(coordinator)
    (refused,) = [line for line in lines if line["event"] == "outbox.refused"]
    assert "39000000 gas, a block takes 30000000" in refused["detail"] and refused["purpose"] == "epoch:0"
    assert [call.data for _, call in chain.pending.values()] == [second]
    assert states(coordinator) == [CallState.QUEUED, CallState.SENT]
    coordinator.engine.dispose()


def test_a_call_that_is_sent_again_keeps_its_gas_where_no_block_has_as_much(database: Path, tmp_path: Path) -> None:
    call = b"\x00"
    chain = FakeChain(gas={call: 23_076_923})
    coordinator = make_coordinator(tmp_path, database, chain)
    with coordinator.writing() as session:
        queue_call(session, "epoch:0", "ledger", call)
    send_outbox(coordinator)
    chain.gas = {call: 30_000_000}
    act(coordinator, chain, "wait", 1)
    send_outbox(coordinator)
    assert [sent.gas_limit for _, sent in chain.pending.values()] == [29_999_999]
    chain.mine()
    send_outbox(coordinator)
    assert states(coordinator) == [CallState.MINED]
    coordinator.engine.dispose()


def states(coordinator: Coordinator) -> list[str]:
    with coordinator.reading() as session:
        return list(session.scalars(select(Outbox.state).order_by(Outbox.id)))
