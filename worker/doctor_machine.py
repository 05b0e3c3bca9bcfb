"""What of this machine a worker needs: engine, kernels, cores, memory, disk, GPU, the metrics' port, the webhook.

In: `WorkerConfig`. Out: findings. Nothing outside is asked.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx

from protocol.doctor import Finding, installed_version
from protocol.engines.vllm.library import require_installed
from protocol.errors import ConfigError, ProofpoolError
from protocol.kernels import are_enabled, uncompiled
from protocol.listen_address import why_not_free
from worker.alerts import webhook_of
from worker.config import WorkerConfig
from worker.folder import contents
from worker.health import Health
from worker.state_file import process_of

GIB = 2**30
COPIES = 3
"""The model's bytes in memory: the engine's, the self-check's, and room for keys, values and activations."""
ASK_SECONDS = 5.0


def machine_findings(config: WorkerConfig) -> Iterator[Finding]:
    yield _process(config)
    yield _engine(config)
    yield _gpu(config)
    yield _kernels()
    yield _cores(config)
    yield _memory(config)
    yield _disk(config)
    yield from _port(config)
    yield from _webhook(config)


def _process(config: WorkerConfig) -> Finding:
    return Finding("worker", "ok", "running" if process_of(config.data_dir).is_running else "not running")


def _engine(config: WorkerConfig) -> Finding:
    if config.engine == "vllm":
        return _vllm(config)
    if importlib.util.find_spec("torch") is None:
        fix = "pip install 'proofpool[worker]', or set `engine`"
        return Finding("engine", "error", "`engine` is torch, and torch isn't installed", fix)
    return Finding("engine", "ok", f"torch: torch {installed_version('torch')}, {config.dtype}")


def _vllm(config: WorkerConfig) -> Finding:
    try:
        distribution, number = require_installed()
    except ConfigError as error:
        return Finding("engine", "error", f"`engine` is vllm, and {error.what}: {error.why}", error.todo)
    return Finding("engine", "ok", f"vllm: {distribution} {number}, {config.dtype}, {config.vllm_model_runner}")


def _gpu(config: WorkerConfig) -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("gpu", "warning", "unknown: torch isn't installed", "pip install 'proofpool[worker]'")
    import torch

    if not torch.cuda.is_available():
        return Finding("gpu", "ok", "none that torch sees: the engine computes on the processor")
    free, total = torch.cuda.mem_get_info()
    return Finding("gpu", "ok", f"{torch.cuda.get_device_name()}, {free / GIB:.1f} of {total / GIB:.1f} GiB free")


def _kernels() -> Finding:
    if not are_enabled():
        why = "off (numba is missing, or PROOFPOOL_KERNELS=plain): proofs and sampling cost several times as much"
        return Finding("kernels", "warning", why, "pip install 'proofpool[worker]'")
    if missing := uncompiled():
        names = ", ".join(missing)
        fix = "`python -m protocol.kernels` compiles them now; the first task does it else"
        return Finding("kernels", "warning", f"not compiled yet: {names}", fix)
    return Finding("kernels", "ok", "compiled")


def _cores(config: WorkerConfig) -> Finding:
    usable = len(os.sched_getaffinity(0))
    if config.num_threads > usable:
        why = f"num_threads is {config.num_threads}, {usable} cores are usable"
        return Finding("cores", "warning", why, f"set num_threads = {usable}: more is slower")
    return Finding("cores", "ok", f"{usable} usable, num_threads is {config.num_threads}")


def _memory(config: WorkerConfig) -> Finding:
    available = _available_bytes()
    if available is None:
        return Finding("memory", "warning", "unknown: /proc/meminfo can't be read", "see that the model fits in")
    needed = COPIES * _model_bytes(config)
    said = f"{available / GIB:.1f} GiB available"
    if not needed:
        return Finding("memory", "ok", f"{said}; what the model needs isn't known before its weights are here")
    if available < needed:
        fix = "a smaller max_batch, fewer other processes, or a machine with more"
        return Finding("memory", "warning", f"{said}, the model takes some {needed / GIB:.1f}", fix)
    return Finding("memory", "ok", f"{said}, the model takes some {needed / GIB:.1f}")


def _disk(config: WorkerConfig) -> Finding:
    folder = _existing(config.data_dir)
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        return Finding("disk", "error", f"{folder} can't be written", "another `data_dir`, or its owner")
    room = max(config.alert_disk_bytes, (config.num_versions_kept + 1) * _model_bytes(config))
    said = f"{free / GIB:.1f} GiB free under {folder}"
    if free < room:
        return Finding("disk", "warning", f"{said}, {room / GIB:.1f} are wanted", "make room, or another `data_dir`")
    return Finding("disk", "ok", said)


def _port(config: WorkerConfig) -> Iterator[Finding]:
    if config.metrics_address is None:
        return
    try:
        why = why_not_free(config.metrics_address)
    except ConfigError as error:
        yield Finding("port", "error", error.why, "set `metrics_address` to HOST:PORT")
        return
    if not why:
        yield Finding("port", "ok", f"{config.metrics_address} is free for metrics")
    elif _is_ours(config.metrics_address):
        yield Finding("port", "ok", f"{config.metrics_address} is served by a worker")
    else:
        detail = f"metrics_address {config.metrics_address}: {why}"
        yield Finding("port", "error", detail, "set it to a free one: the worker doesn't start without it")


def _webhook(config: WorkerConfig) -> Iterator[Finding]:
    try:
        if webhook_of(config, os.environ):
            yield Finding("webhook", "ok", "alerts are posted")
    except ProofpoolError as error:
        yield Finding("webhook", "error", f"{error.what}: {error.why}", error.todo)
    except OSError as error:
        yield Finding("webhook", "error", f"{config.alert_webhook_file}: {error.strerror}", "check the path")


def _is_ours(address: str) -> bool:
    try:
        answer = httpx.get(f"http://{address}/healthz", timeout=ASK_SECONDS)
        Health.model_validate_json(answer.content)
    except (httpx.HTTPError, ValueError):
        return False
    return True


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def _model_bytes(config: WorkerConfig) -> int:
    """Of the newest version that is here; 0 where none is."""
    newest = max(contents(config.data_dir).policy_versions, default=None)
    if newest is None:
        return 0
    return sum(path.stat().st_size for path in (config.data_dir / "weights" / f"v{newest}").glob("*.safetensors"))


def _existing(folder: Path) -> Path:
    """The folder, or what there is of the way to it."""
    while not folder.exists():
        folder = folder.absolute().parent
    return folder
