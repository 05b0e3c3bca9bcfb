"""kill -9 of a process that sends: the next one with the same journal waits for what is on its way."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from structlog.testing import capture_logs

from protocol.chain.client import ChainClient
from protocol.chain.journal import Journal
from protocol.chain.lane import Lane
from protocol.clock import SystemClock
from testnet.chain.genesis import CHAIN_ID, dev_signers
from testnet.chain.process import NodeProcess, python_environment

TO = "0x" + "6d" * 20
ACCOUNT = 11

SENDER = f"""
import sys
from pathlib import Path
from protocol.chain.client import ChainClient
from protocol.chain.journal import Journal
from protocol.chain.lane import Lane
from protocol.chain.rpc import JsonRpc
from protocol.clock import SystemClock
from testnet.chain.genesis import dev_signers

client = ChainClient(JsonRpc(sys.argv[1]), {CHAIN_ID})
send = client.send_raw

def send_and_say_so(raw):
    send(raw)
    print("handed over", flush=True)

client.send_raw_mined = send_and_say_so
signer = dev_signers({ACCOUNT + 1})[{ACCOUNT}]
Lane(client, signer, SystemClock(), journal=Journal(Path(sys.argv[2]))).send("{TO}", b"", value_wei=5)
print("mined", flush=True)
"""


def test_a_killed_sender_is_followed_by_one_that_sends_nothing_twice(
    node: NodeProcess, make_client: Callable[[NodeProcess], ChainClient], tmp_path: Path
) -> None:
    client, signer = make_client(node), dev_signers(ACCOUNT + 1)[ACCOUNT]
    before, nonce = client.balance_wei(TO), client.transaction_count(signer.address)
    client.rpc.call("evm_setAutomine", False)
    process = subprocess.Popen(
        [sys.executable, "-c", SENDER, node.url, str(tmp_path / "journal")],
        stdout=subprocess.PIPE,
        text=True,
        env=python_environment(),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "handed over\n"
        process.send_signal(signal.SIGKILL)
        assert process.communicate()[0] == ""
    finally:
        client.rpc.call("evm_setAutomine", True)
    journal = Journal(tmp_path / "journal")
    with capture_logs() as logs:
        client.rpc.call("evm_mine")
        receipt = Lane(client, signer, SystemClock(), journal=journal).send(TO, b"", value_wei=5)
    assert receipt.succeeded
    assert [entry["event"] for entry in logs] == ["transaction.taken_up"]
    assert client.balance_wei(TO) == before + 5
    assert client.transaction_count(signer.address) == nonce + 1
    assert journal.unsettled(CHAIN_ID, signer.address) == []
    journal.close()
