"""What a coordinator is told at its start; everything about the pool itself is read from the chain.

In: defaults < TOML < `PROOFPOOL_COORDINATOR_…` < flags (`protocol/config.py`). Out: `CoordinatorConfig`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.config import Address, RoleConfig


class CoordinatorConfig(RoleConfig):
    """Settings of `proofpool coordinator serve`."""

    chain_url: str
    """JSON-RPC endpoint of a node of the pool's chain."""
    pool_id: int = Field(ge=1)
    ledger: Address | None = None
    """The Ledger contract; it names the others, and their code is compared with the committed artifacts."""
    deployment: Path | None = None
    """Deployment file (`proofpool chain deploy`) that the chain must agree with, code and salt included."""
    keystore: Path
    """The coordinator's key: signs tasks, receipts and batches, and sends the pool's transactions."""
    password_file: Path | None = None
    checkpoint_keystore: Path | None = None
    """The key that signs the log's checkpoints, where the pool's record names one; opened with the same password."""
    data_dir: Path
    """Database, blobs, and the resolved configuration."""
    database_url: str | None = None
    """Another database than `data_dir/coordinator.sqlite`."""
    rules_files: tuple[Path, ...] = ()
    """JSON documents of the rules that the pool has used; the newest must hash to the pool's `rules_hash`."""
    shardcast_urls: tuple[str, ...] = ()
    """Where workers fetch weights."""
    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=0, lt=65536)
    """0 takes any free port."""
    public_hosts: tuple[str, ...] = ()
    """Host headers that signed requests may name, besides the address that the server listens on."""
    max_upload_bytes: int = Field(default=16 << 20, ge=1)
    """The most that a request may carry; a task's own rules may allow less."""
    max_held_bytes: int = Field(default=256 << 20, ge=1)
    """The most that all requests together hold in memory; who comes over it is told to come again (`rate_limited`)."""
    lease_seconds: int = Field(default=60, ge=1)
    """From lease to deadline, in chain time. Who still works by then is given more, up to the pool's own maximum."""
    max_leases: int = Field(default=64, ge=1)
    """The most open leases of one node, however well it works."""
    groups_per_step: int = Field(default=32, ge=1)
    """Groups with variance that make a batch."""
    backlog_steps: int | None = Field(default=None, ge=1)
    """How many steps' worth of groups may be leased, judged or waiting at once; more isn't leased (`no_demand`).
    Without it, what a policy version can still be trained on for: `max_async` + 1 steps, fewer as steps go by."""
    batch_seconds: int = Field(default=600, ge=1)
    """How long the trainer is expected to take for a step, in chain time."""
    reveal_epochs: int = Field(default=6, ge=2)
    """Epochs from a draw to the verdict; later ones still count, but the next seat is drawn meanwhile."""
    epoch_seconds: float = Field(default=5.0, gt=0)
    """From one epoch's leaf to the next, in chain time; longer where the chain is slow to take a commit."""
    epochs_per_earnings: int = Field(default=3, ge=1)
    """How many epochs lie between two earnings statements."""
    first_block: int = Field(default=0, ge=0)
    """Where indexing starts: the block of the deployment, or any before it; with `deployment`, its block at least."""
    loop_seconds: float = Field(default=0.25, gt=0)
    """Pause between two turns of the background loop."""
    log_format: Literal["auto", "json", "pretty"] = "auto"

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'coordinator.sqlite'}"
