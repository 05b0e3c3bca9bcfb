"""What a worker is told at its start; everything about the pool is read from the coordinator and the chain.

In: defaults < TOML < `PROOFPOOL_WORKER_…` < flags (`protocol/config.py`). Out: `WorkerConfig`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.config import Address, RoleConfig
from protocol.engines.names import Dtype, EngineName
from protocol.engines.vllm.options import ModelRunner, VllmOptions


class WorkerConfig(RoleConfig):
    """Settings of `proofpool worker run`.

    Example: `load_config(WorkerConfig, "worker", Path("worker.toml"))`.
    """

    coordinator_url: str
    chain_url: str
    """JSON-RPC endpoint of a node of the pool's chain: the coordinator's word isn't taken for beacons and weights."""
    pool_id: int = Field(ge=1)
    ledger: Address | None = None
    """The Ledger contract to insist on; without it, the one that the coordinator names, its code checked."""
    deployment: Path | None = None
    """Deployment file (`proofpool chain deploy`) that the chain must agree with, code and salt included."""
    keystore: Path
    """The node's key: it signs submissions and requests, and holds no money."""
    password_file: Path | None = None
    data_dir: Path
    """Leases, outbox, weights, and the resolved configuration; belongs to one node in one pool."""
    engine: EngineName = "torch"
    """`torch` or `vllm`."""
    dtype: Dtype = "float32"
    """What the engine computes in; the pool's thresholds are for one of them."""
    max_batch: int = Field(default=64, ge=1)
    """Rollouts that decode together; memory for keys and values grows with it."""
    max_cache_tokens: int = Field(default=65_536, ge=16)
    """Keys and values that the torch engine keeps at most; rollouts wait for room at their longest."""
    vllm_cache_gib: float | None = Field(default=None, gt=0)
    """vLLM's memory for keys and values; without it 1 GiB on a processor, and most of a GPU."""
    vllm_max_length: int | None = Field(default=None, ge=2)
    """Most tokens of prompt and completion together; without it the model's own limit, for which memory must do."""
    vllm_max_step_tokens: int | None = Field(default=None, ge=1)
    """Most tokens that vLLM computes in one step."""
    vllm_model_runner: ModelRunner = "v1"
    """vLLM's `v1`, or `v2` on GPUs with Triton."""
    max_tasks: int = Field(default=2, ge=1)
    """Tasks at once: while one generates, the next is fetched, and joins as soon as the engine has room."""
    num_threads: int = Field(default=1, ge=1)
    """Threads that torch computes with."""
    num_versions_kept: int = Field(default=2, ge=1)
    """Policy versions left on disk."""
    follow_seconds: float = Field(default=1.0, gt=0)
    """Pause between two looks for a newer policy version."""
    retry_first_seconds: float = Field(default=0.25, gt=0)
    """First wait for something outside; each further one is longer."""
    retry_most_seconds: float = Field(default=30.0, gt=0)
    give_up_seconds: float = Field(default=3600.0, gt=0)
    """A submission that is only ever told to retry is given up this long after its task's deadline."""
    keep_refused_days: float = Field(default=30.0, ge=0)
    """How long files that were refused for good stay in `outbox/refused/`, counted from deadline to deadline."""
    metrics_address: str | None = None
    """Where `/metrics` (Prometheus) and `/healthz` answer, such as `127.0.0.1:9464`; without it, nowhere."""
    stall_seconds: float = Field(default=900.0, gt=0)
    """`/healthz` is 503 once nothing has moved for this long, and nothing is waited for."""
    look_seconds: float = Field(default=60.0, gt=0)
    """Pause between two looks at coordinator and chain, for metrics, alerts and what a status remembers."""
    alert_webhook_file: Path | None = None
    """Its first line (mode 0600) is the URL that alerts are posted to; else `PROOFPOOL_ALERT_WEBHOOK` is, if set."""
    alert_minutes: float = Field(default=60.0, gt=0)
    """An alert is sent once nothing was accepted for this many minutes."""
    alert_disk_bytes: int = Field(default=2 << 30, ge=0)
    """An alert is sent once less is free under `data_dir`."""
    drain_seconds: float = Field(default=600.0, ge=0)
    """After a signal, tasks in the engine are finished for so long at most; then they are handed back."""
    min_free_disk_bytes: int = Field(default=512 << 20, ge=0)
    """With less left on the disk of `data_dir`, no weights are fetched and nothing is leased."""
    max_memory_bytes: int | None = Field(default=None, ge=1)
    """With more in memory, nothing is leased; without it, memory isn't bounded."""
    log_format: Literal["auto", "json", "pretty"] = "auto"

    @property
    def vllm(self) -> VllmOptions:
        """What is vLLM's own."""
        return VllmOptions(
            cache_gib=self.vllm_cache_gib,
            max_length=self.vllm_max_length,
            max_step_tokens=self.vllm_max_step_tokens,
            model_runner=self.vllm_model_runner,
        )
