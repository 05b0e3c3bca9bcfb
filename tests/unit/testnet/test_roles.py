"""What a role of a testnet is given: a configuration that its process reads, and keys that open."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from protocol.config import load_config
from protocol.keystore import open_keystore, read_password
from testnet.accounts import Accounts
from testnet.roles import Site, worker
from worker.config import WorkerConfig


def site_in(folder: Path) -> Site:
    genesis = SimpleNamespace(pool_id=1, contracts=SimpleNamespace(ledger="0x" + "11" * 20))
    return Site(folder, cast(Any, genesis), "http://127.0.0.1:8545", 8700, 8500, folder / "model")


def test_a_workers_process_has_the_nodes_key_and_the_providers_lies_beside_it(tmp_path: Path) -> None:
    (provider,) = Accounts.of(0, 1, 0, ()).providers
    worker(site_in(tmp_path), provider)
    config = load_config(WorkerConfig, "worker", tmp_path / "config" / "worker-0.toml", {})
    password = read_password(config.password_file)
    assert open_keystore(config.keystore, password).address == provider.node.address
    owners = tmp_path / "keys" / "provider-0.json"
    assert open_keystore(owners, password).address == provider.owner.address
    assert str(owners) not in (tmp_path / "config" / "worker-0.toml").read_text()


def test_a_workers_engine_and_its_python_are_as_asked(tmp_path: Path) -> None:
    """Only workers run in the other environment; what isn't asked for is as ever."""
    plain, other = Accounts.of(0, 1, 0, ("forged-proof",)).providers
    python = tmp_path / "bin" / "python"
    asked = worker(site_in(tmp_path), other, "vllm", python)
    assert asked.command[:3] == [str(python), "-m", "testnet.cheats"]
    assert load_config(WorkerConfig, "worker", tmp_path / "config" / "worker-1.toml", {}).engine == "vllm"
    assert worker(site_in(tmp_path), plain).command[0] == sys.executable
    assert load_config(WorkerConfig, "worker", tmp_path / "config" / "worker-0.toml", {}).engine == "torch"
