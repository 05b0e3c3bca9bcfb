"""What a provider's commands are told: which chain and pool, and which key speaks.

In: defaults < TOML < `PROOFPOOL_PROVIDER_…` < flags (`protocol/config.py`). Out: `ProviderConfig`. A coordinator's URL
alone names the pool and its contracts, whose code is checked on chain.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pydantic import Field

from protocol.config import Address, RoleConfig, load_config
from protocol.errors import ConfigError


class ProviderConfig(RoleConfig):
    """Settings of `proofpool provider …`.

    Example: `load_config(ProviderConfig, "provider", Path("provider.toml"))`.
    """

    chain_url: str = ""
    coordinator_url: str | None = None
    """Names pool and contracts where nothing else does, and serves earnings; nothing on chain takes its word."""
    pool_id: int | None = Field(default=None, ge=1)
    ledger: Address | None = None
    deployment: Path | None = None
    first_block: int = Field(default=0, ge=0)
    """Nothing of the provider's is in an earlier block; a deployment file says it too; else it is looked for."""
    keystore: Path | None = None
    """The provider's cold key: a file, or a key's name; without it PROOFPOOL_PRIVATE_KEY on local chains, else the key
    `provider`."""
    password_file: Path | None = None


def settings(file: Path | None, **flags: object) -> ProviderConfig:
    """The configuration, with what the coordinator names where nothing else does. Raises ConfigError, Unreachable."""
    config = load_config(ProviderConfig, "provider", file, flags=flags, page="docs/worker.md")
    if not config.chain_url:
        todo = "give --chain URL, or set `chain_url` in a file that --config names"
        raise ConfigError("no chain is named", "neither --chain nor PROOFPOOL_CHAIN_URL", todo)
    if config.ledger is not None or config.deployment is not None or config.coordinator_url is None:
        return config
    from protocol.client import CoordinatorClient

    with closing(CoordinatorClient(config.coordinator_url)) as client:
        pool = client.pool()
    if config.pool_id not in (None, pool.pool_id):
        why = f"pool {pool.pool_id} at {config.coordinator_url}, asked for is {config.pool_id}"
        raise ConfigError("the coordinator serves another pool", why, "name that pool's coordinator, or its Ledger")
    return config.model_copy(update={"ledger": pool.contracts.ledger, "pool_id": pool.pool_id})
