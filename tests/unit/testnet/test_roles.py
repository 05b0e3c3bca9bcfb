"""What a role of a testnet is given: a configuration that its process reads, and keys that open."""

from __future__ import annotations

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
