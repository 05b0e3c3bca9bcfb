"""What a verifier is told at its start; everything about the pool itself is read from the chain.

In: defaults < TOML < `PROOFPOOL_VERIFIER_…` < flags (`protocol/config.py`). Out: `VerifierConfig`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.config import Address, RoleConfig


class VerifierConfig(RoleConfig):
    """Settings of `proofpool verifier run`."""

    coordinator_url: str
    """Where assignments, files and the log come from; none of it is believed unchecked."""
    chain_url: str
    """JSON-RPC endpoint of a node of the pool's chain, best one of your own."""
    pool_id: int = Field(ge=1)
    ledger: Address | None = None
    """The Ledger contract that is expected; without it the one that the coordinator names is taken."""
    deployment: Path | None = None
    """Deployment file (`proofpool chain deploy`) that the chain must agree with, code and salt included."""
    keystore: Path
    """The validator's key: signs verdicts and attestations, and sends accusations."""
    password_file: Path | None = None
    data_dir: Path
    """Verdicts, the checked log, weights. A restart with the same folder reveals what was committed."""
    loop_seconds: float = Field(default=0.5, gt=0)
    """Pause between two turns of the loop."""
    judge_seconds: float = Field(default=1.0, ge=0)
    """How long one turn judges before it commits to its verdicts; at least one submission."""
    num_versions_kept: int = Field(default=4, ge=1)
    """Policy versions kept on disk."""
    num_threads: int = Field(default=1, ge=1)
    """Threads of the model's forward pass."""
    log_format: Literal["auto", "json", "pretty"] = "auto"
