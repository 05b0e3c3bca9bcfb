"""The trainer's configuration. Run `proofpool trainer run --config trainer.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.config import Address, RoleConfig
from protocol.listen_address import ListenAddress
from protocol.shardcast.manifest import MAX_CHAIN
from trainer.checkpoint import Start
from trainer.held_back import EvaluationConfig
from trainer.learner import RecipeConfig
from trainer.ranks import ScaleConfig
from trainer.trackers import TrackerName


class PublishingConfig(BaseModel):
    """How versions are published, and how long they are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    snapshot_every: int = Field(default=1, ge=1, le=MAX_CHAIN)
    """A version that this divides is published in full besides its patch; others as a patch alone."""
    keep_versions: int = Field(default=5, ge=1, le=1_000_000)
    """How many of the newest versions stay in `origin_dir`, with those that patches to them need."""
    keep_seconds: float = Field(default=7 * 86400.0, ge=0)
    """How long older ones stay: at least the pool's retention, in which verifiers and juries may ask for them."""


class TrainerConfig(RoleConfig):
    """Where the trainer finds everything; the recipe is a table of its own."""

    coordinator_url: str
    chain_url: str
    pool_id: int = Field(default=1, ge=1)
    ledger: Address | None = None
    """The Ledger contract; it names the others, and their code is compared with the committed artifacts."""
    deployment: Path | None = None
    """Deployment file (`proofpool chain deploy`) that the chain must agree with, code and salt included."""
    keystore: Path
    password_file: Path | None = None
    base_model: Path
    """Hugging Face folder of policy version 0."""
    data_dir: Path
    """Checkpoints and metrics.jsonl."""
    origin_dir: Path
    """What `proofpool shardcast serve` serves."""
    num_steps: int | None = Field(default=None, ge=1)
    """Stop after this policy version; run until stopped without it."""
    num_threads: int = Field(default=1, ge=1, le=1024)
    seed: int = Field(default=0, ge=0, lt=2**63)
    poll_seconds: float = Field(default=0.5, ge=0.01, le=3600)
    log_format: Literal["auto", "json", "pretty"] = "auto"
    keep_checkpoints: int = Field(default=3, ge=1, le=1_000_000)
    """How many checkpoints stay; a step can be replayed as long as the version before it is there."""
    resume: Start = "newest"
    """Where to start: the `newest` checkpoint, or the base model where there is none; only `anew`; a policy version."""
    metrics_address: ListenAddress | None = None
    """Where Prometheus and supervisors may ask (`/metrics`, `/healthz`), such as `127.0.0.1:9465`; nowhere without."""
    stall_seconds: float = Field(default=3600.0, gt=0)
    """A phase of a step that computes for longer is called stuck by `/healthz`."""
    tracker: TrackerName | None = None
    """What draws the curves elsewhere: `tensorboard`, `wandb` or `trackio`; nothing without it."""
    tracker_project: str = "proofpool"
    """What the tracker calls the runs of a project; wandb and trackio have one."""
    tracker_run: str = "trainer"
    """What the tracker calls this run; a run of that name goes on."""
    recipe: RecipeConfig = RecipeConfig()
    scale: ScaleConfig = ScaleConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    publishing: PublishingConfig = PublishingConfig()
