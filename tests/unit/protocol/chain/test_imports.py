"""What a role process loads to talk to the chain."""

import subprocess
import sys

HEAVY = ("web3", "eth_account", "eth_tester", "eth_keyfile", "eth", "torch", "transformers", "fastapi")


def test_the_chain_client_loads_nothing_heavy() -> None:
    code = (
        "import sys, protocol.chain.pool, protocol.keystore, protocol.http, protocol.merkle.commitment\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
