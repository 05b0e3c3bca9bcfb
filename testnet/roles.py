"""Each role of a testnet as a process: its configuration file, its keystore, its command line.

In: a `Site` (what all share) and a key. Out: `Process`es that aren't started yet. The roles are the
product's own commands; only cheats have a command of their own (`python -m testnet.cheats`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.engines.names import EngineName
from protocol.files import write_atomically
from protocol.keystore import CHEAP_SCRYPT_N, write_secret
from testnet import profile
from testnet.accounts import PASSWORD, Account, Provider, keystore_path
from testnet.genesis import Genesis
from testnet.plan import Plan
from testnet.process import Process

HOST = "127.0.0.1"
WORKER_NICENESS = 5
"""Workers take all that they get; on a small machine the others must not wait for them."""


@dataclass(frozen=True)
class Site:
    """What all roles of one testnet share."""

    run_dir: Path
    genesis: Genesis
    chain_url: str
    coordinator_port: int
    relay_port: int
    base_model: Path
    log_format: str = "json"

    @property
    def coordinator_url(self) -> str:
        return f"http://{HOST}:{self.coordinator_port}"

    @property
    def relay_url(self) -> str:
        return f"http://{HOST}:{self.relay_port}"

    @property
    def origin_dir(self) -> Path:
        return self.run_dir / "origin"

    def process(
        self,
        name: str,
        command: list[str],
        niceness: int = 0,
        *,
        may_finish: bool = False,
        python: Path | None = None,
    ) -> Process:
        """One of our commands, run by `python`, by this process's own without it."""
        log = self.run_dir / "logs" / f"{name}.log"
        return Process(name, [str(python or sys.executable), "-m", *command], log, niceness, may_finish=may_finish)


def coordinator(site: Site, account: Account, log: Account, rules_file: Path, groups_per_step: int) -> Process:
    settings = _joining(site, account, with_url=False) | {
        "checkpoint_keystore": str(_keystore(site, log)),
        "ledger": site.genesis.contracts.ledger,
        "first_block": site.genesis.first_block,
        "rules_files": [str(rules_file)],
        "shardcast_urls": [site.relay_url],
        "host": HOST,
        "port": site.coordinator_port,
        "groups_per_step": groups_per_step,
        "epoch_seconds": profile.EPOCH_SECONDS,
        "lease_seconds": profile.TIMES["lease_max"],
    }
    return site.process(
        "coordinator", ["coordinator", "serve", "--config", str(_write_config(site, "coordinator", settings))]
    )


def relay(site: Site) -> Process:
    command = [
        "protocol.cli",
        "shardcast",
        "serve",
        str(site.origin_dir),
        "--host",
        HOST,
        "--port",
        str(site.relay_port),
    ]
    return site.process("relay", command)


def trainer(site: Site, account: Account, plan: Plan) -> Process:
    settings = _joining(site, account) | {
        "ledger": site.genesis.contracts.ledger,
        "base_model": str(site.base_model),
        "origin_dir": str(site.origin_dir),
        "num_steps": plan.num_steps,
        "recipe": plan.recipe,
        "scale": plan.scale,
        "evaluation": plan.evaluation,
        "publishing": {"snapshot_every": profile.SNAPSHOT_EVERY},
    }
    file = str(_write_config(site, "trainer", settings))
    return site.process("trainer", ["trainer", "run", "--config", file], may_finish=True)


def worker(site: Site, provider: Provider, engine: EngineName = "torch", python: Path | None = None) -> Process:
    """Its process has the node's key; the provider's lies beside it, for whoever wants to appeal.

    `python` is of the environment where `engine` is installed, if that isn't this one.
    """
    _keystore(site, provider.owner)
    settings = _joining(site, provider.node) | {"ledger": site.genesis.contracts.ledger, "retry_most_seconds": 2.0}
    settings["engine"] = engine
    file = str(_write_config(site, provider.name, settings))
    honest = ["worker", "run", "--config", file]
    command = honest if provider.cheat is None else ["testnet.cheats", provider.cheat, "--config", file]
    return site.process(provider.name, command, WORKER_NICENESS, python=python)


def verifier(site: Site, account: Account) -> Process:
    settings = _joining(site, account) | {"ledger": site.genesis.contracts.ledger}
    file = str(_write_config(site, account.name, settings))
    return site.process(account.name, ["verifier", "run", "--config", file])


def _joining(site: Site, account: Account, with_url: bool = True) -> dict[str, Any]:
    """What every role needs to know; its keystore is made on the way."""
    password_file = site.run_dir / "keys" / "password"
    if not password_file.exists():
        write_atomically(password_file, PASSWORD.encode() + b"\n", mode=0o600)
    settings = {
        "chain_url": site.chain_url,
        "pool_id": site.genesis.pool_id,
        "keystore": str(_keystore(site, account)),
        "password_file": str(password_file),
        "data_dir": str(site.run_dir / "data" / account.name),
        "log_format": site.log_format,
    }
    return settings | {"coordinator_url": site.coordinator_url} if with_url else settings


def _keystore(site: Site, account: Account) -> Path:
    keystore = keystore_path(site.run_dir / "keys", account)
    if not keystore.exists():
        write_secret(keystore, PASSWORD, account.secret, scrypt_n=CHEAP_SCRYPT_N)
    return keystore


def _write_config(site: Site, name: str, settings: Mapping[str, Any]) -> Path:
    file = site.run_dir / "config" / f"{name}.toml"
    write_atomically(file, to_toml(settings).encode())
    return file


def to_toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Scalars and arrays first, then one table for each mapping, however deep; JSON's spelling of both is TOML's."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if not isinstance(value, Mapping)]
    tables = [
        f"\n[{table}{key}]\n{to_toml(value, f'{table}{key}.')}"
        for key, value in settings.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*plain, *tables]) + "\n"
