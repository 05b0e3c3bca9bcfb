"""The chain that a testnet runs on: a node that is there already, anvil, or the embedded one.

In: a URL or none, a folder, the block time. Out: a `ChainNode` with its URL; its name goes into the banner.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from protocol.clock import Clock
from testnet.chain.anvil import find_anvil, start_anvil
from testnet.chain.process import NodeProcess, python_environment

EMBEDDED_NAME = "embedded py-evm"


@dataclass(frozen=True)
class ChainNode:
    """A node to talk to; `process` is None where somebody else runs it.

    Example: `with start_node(folder, clock, block_seconds=1) as node: ChainClient(JsonRpc(node.url), 31337)`.
    """

    name: str
    url: str
    process: NodeProcess | None = None

    def __enter__(self) -> ChainNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


def start_node(folder: Path, clock: Clock, *, block_seconds: float, url: str | None = None) -> ChainNode:
    """Use `url` if one is given, else anvil if it's installed, else the embedded node. Raises ChainError."""
    if url is not None:
        return ChainNode("external", url)
    binary = find_anvil()
    if binary is not None:
        process = start_anvil(binary, folder, clock, block_seconds=block_seconds)
    else:
        process = start_embedded(folder, clock, block_seconds=block_seconds)
    return ChainNode(process.name, process.url, process)


def start_embedded(folder: Path, clock: Clock, *, block_seconds: float, port: int = 0) -> NodeProcess:
    """Start the py-evm node as a process of its own. Raises ChainError."""
    command = [
        sys.executable,
        "-m",
        "testnet.chain.embedded",
        "--port",
        str(port),
        "--block-time",
        f"{block_seconds:g}",
    ]
    environment = python_environment() | {"ETH_HASH_BACKEND": "pysha3"}  # native keccak, for py-evm
    return NodeProcess(EMBEDDED_NAME, command, folder / "embedded.log", clock, environment)
