"""An anvil that can be stopped and started again on its own chain, and put back to where a run began.

Chain time is the blocks': each is one second after the last, whatever the machine does meanwhile, so that a run means
the same each time. Block hashes aren't: anvil draws a random number for each, and with it beacons and drawn seats.
"""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile

from protocol.chain.client import ChainClient
from protocol.chain.rpc import JsonRpc
from protocol.clock import SystemClock
from protocol.errors import NodeRefused
from testnet.chain.anvil import find_anvil, start_anvil
from testnet.chain.genesis import CHAIN_ID
from testnet.chain.process import NodeProcess

FORGOTTEN = "Required data unavailable"
AHEAD_SECONDS = 30 * 86_400
"""Chain time before the machine's, which anvil holds the next block's against after a start."""


class KeptNode:
    """One port, one state file, and a process that comes and goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state_file = folder / "chain.json"
        self.process: NodeProcess = self._start(0)
        self.port = int(self.process.url.rsplit(":", 1)[1])
        self.client = ChainClient(JsonRpc(self.process.url), CHAIN_ID)
        self.first_block = 0
        """The oldest block whose state the process has: no reorg goes below it, and no snapshot."""
        self.num_starts = 1
        self._keep_time()
        self.pass_time(AHEAD_SECONDS)

    def restart(self) -> None:
        """Stopped as by an operator, and started on what it wrote: snapshots and states of old blocks are gone."""
        self.process.stop()
        self._go_on()

    def save(self, file: Path) -> None:
        """Keep the chain as it is in a file."""
        self.process.stop()
        copyfile(self._state_file, file)
        self._go_on()

    def load(self, file: Path) -> None:
        """Go back to the chain in a file."""
        self.process.stop()
        copyfile(file, self._state_file)
        self._go_on()

    def snapshot(self) -> str:
        """Of here. A block is made on it: the state of one that is often gone back to is forgotten."""
        snapshot = str(self.client.rpc.call("evm_snapshot"))
        self._settle()
        return snapshot

    def revert(self, snapshot: str) -> None:
        assert self.client.rpc.call("evm_revert", snapshot)

    def pass_time(self, seconds: int) -> None:
        """A block that many seconds after the last one."""
        self.client.rpc.call("evm_setNextBlockTimestamp", self.client.head().timestamp + seconds)
        self.client.rpc.call("evm_mine")

    def reorg(self, depth: int, *, keeps_transactions: bool) -> bool:
        """Other blocks in place of the newest ones, and one more: empty ones, or with all of the same transactions.

        Whether there was one: now and then anvil has forgotten the state that it would have to go back to.
        """
        head = self.client.head().number
        kept = self._transactions(head - depth + 1, head) if keeps_transactions else []
        try:
            self.client.rpc.call("anvil_reorg", depth, [[raw, 0] for raw in kept])
        except NodeRefused as error:
            if FORGOTTEN not in error.message:
                raise
            return False
        self.client.rpc.call("evm_mine")
        return True

    def close(self) -> None:
        self.client.rpc.close()
        self.process.stop()

    def _transactions(self, first: int, last: int) -> list[str]:
        """Raw, in order."""
        blocks = [self.client.rpc.call("eth_getBlockByNumber", hex(number), False) for number in range(first, last + 1)]
        hashes = [one for block in blocks for one in block["transactions"]]
        return [self.client.rpc.call("eth_getRawTransactionByHash", one) for one in hashes]

    def _go_on(self) -> None:
        """From the state file. The first block after a start must be told its time, else it is the machine's."""
        self.process = self._start(self.port)
        self.num_starts += 1
        self._keep_time()
        self._settle()

    def _settle(self) -> None:
        self.pass_time(1)
        self.first_block = self.client.head().number

    def _keep_time(self) -> None:
        self.client.rpc.call("anvil_setBlockTimestampInterval", 1)

    def _start(self, port: int) -> NodeProcess:
        binary = find_anvil()
        assert binary is not None, "anvil is there, or these tests aren't run"
        return start_anvil(binary, self._folder, SystemClock(), block_seconds=0, port=port, state_file=self._state_file)
