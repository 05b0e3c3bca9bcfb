"""Foundry's anvil as the local chain: found on PATH or among the contracts' npm packages, and started.

In: a folder for its files, the block time. Out: a running `NodeProcess`. The flags: cancun and --prune-history
keep memory and block times flat over thousands of blocks, since later forks store a slot a block. The npm
package's `.bin/anvil` is a Node.js wrapper that leaves the real process behind when it's killed, so only the
native binary is started.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import contracts
from protocol.clock import Clock
from testnet.chain.genesis import BALANCE_WEI, CHAIN_ID, GAS_LIMIT, MNEMONIC, NUM_ACCOUNTS
from testnet.chain.process import NodeProcess

NUM_KEPT_STATES = 256
_ELF, _MACH_O = b"\x7fELF", b"\xcf\xfa\xed\xfe"


def find_anvil() -> Path | None:
    """A native anvil binary, or None."""
    return next((path for path in _candidates() if _is_native(path)), None)


def start_anvil(
    binary: Path,
    folder: Path,
    clock: Clock,
    *,
    block_seconds: float,
    port: int = 0,
    state_file: Path | None = None,
) -> NodeProcess:
    """Start it; 0 seconds makes a block for each transaction. Raises ChainError.

    A `state_file` holds the chain from one start to the next: read where it is there, written when the node is stopped.
    """
    command = [
        *(str(binary), "--host", "127.0.0.1", "--port", str(port)),
        *("--chain-id", str(CHAIN_ID), "--hardfork", "cancun", "--gas-limit", str(GAS_LIMIT)),
        *("--mnemonic", MNEMONIC, "--accounts", str(NUM_ACCOUNTS), "--balance", str(BALANCE_WEI // 10**18)),
        *("--prune-history", str(NUM_KEPT_STATES), "--cache-path", str(folder / "cache")),
        *("--slots-in-an-epoch", "1", "--color", "never"),
    ]
    if state_file is not None:
        command += ["--state", str(state_file)]
    if block_seconds:
        command += ["--block-time", f"{block_seconds:g}"]
    return NodeProcess("anvil", command, folder / "anvil.log", clock)


def _candidates() -> Iterator[Path]:
    packages = Path(contracts.__file__).parent / "node_modules" / "@foundry-rs"
    yield from sorted(packages.glob("anvil-*/bin/anvil"))
    if (on_path := shutil.which("anvil")) is not None:
        yield Path(on_path)


def _is_native(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in (_ELF, _MACH_O)
    except OSError:
        return False
