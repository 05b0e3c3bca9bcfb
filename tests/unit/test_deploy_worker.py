"""What deploy/ ships, checked as far as a machine without systemd and Docker allows."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from protocol.cli import load_command
from protocol.errors import KeyFailure
from protocol.keystore import check_private
from tests.unit.worker.conftest import StillClock
from worker.activity import Activity
from worker.config import WorkerConfig
from worker.health import HealthServer
from worker.metrics import WorkerMetrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "proofpool-worker.service"
PREFIX = "PROOFPOOL_WORKER_"
PACKAGES = ("contracts", "protocol", "coordinator", "worker", "verifier", "trainer", "testnet")


def unit(name: str) -> list[str]:
    """Values of a unit's settings, in order."""
    lines = [line for line in UNIT.read_text().splitlines() if line.startswith(f"{name}=")]
    return [line.partition("=")[2] for line in lines]


def image(instruction: str) -> list[str]:
    """Arguments of a Dockerfile's instructions, continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    found = (line.partition(" ") for line in text.splitlines())
    return [rest.strip() for word, _, rest in found if word == instruction]


def settings(variables: Any) -> set[str]:
    return {name.removeprefix(PREFIX).lower() for name in variables if name.startswith(PREFIX)}


def run_flags(words: list[str]) -> set[str]:
    command = load_command("worker").commands["run"]
    known = {option for parameter in command.params for option in parameter.opts}
    return {word for word in words if word.startswith("--")} - known


def test_what_the_unit_sets_are_settings_and_flags() -> None:
    variables = [word.partition("=")[0] for value in unit("Environment") for word in shlex.split(value)]
    assert {"data_dir", "keystore", "password_file"} == settings(variables)
    assert settings(variables) < set(WorkerConfig.model_fields)
    (start,) = unit("ExecStart")
    assert shlex.split(start)[1:3] == ["worker", "run"] and run_flags(shlex.split(start)) == set()


def test_a_stop_is_given_the_time_that_it_takes() -> None:
    drain_seconds = WorkerConfig.model_fields["drain_seconds"].default
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for given in (*unit("TimeoutStopSec"), compose["services"]["worker"]["stop_grace_period"]):
        assert 60 * int(given.removesuffix("in").removesuffix("m")) > drain_seconds


def test_the_unit_gets_its_secrets_as_credentials() -> None:
    named = {value.partition(":")[0] for value in unit("LoadCredential")}
    used = set(re.findall(r"%d/(\S+)", " ".join(unit("Environment"))))
    assert named == used == {"node.json", "keystore-password"}
    assert not any("PASSWORD=" in value or "PRIVATE_KEY" in value for value in unit("Environment"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd isn't installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/proofpool/bin/proofpool", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    here.write_text(here.read_text().replace("ProtectHome=yes", "ProtectHouse=yes"))
    done = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False)
    assert "ProtectHouse" in done.stderr, "it would have said so"


def test_a_credential_is_private_though_its_access_list_shows_as_group_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keystore-password"
    file.write_text("word\n")
    file.chmod(0o440)
    with pytest.raises(KeyFailure):
        check_private(file)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    check_private(file)
    for mode in (0o444, 0o460, 0o450):
        file.chmod(mode)
        with pytest.raises(KeyFailure):
            check_private(file)
    elsewhere = tmp_path / "other" / "password"
    elsewhere.parent.mkdir()
    elsewhere.touch(mode=0o440)
    with pytest.raises(KeyFailure):
        check_private(elsewhere)


def test_the_image_copies_what_there_is_and_every_package() -> None:
    copied = {word for line in image("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(PACKAGES) < copied
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == copied


def test_what_the_image_sets_are_settings_and_it_runs_as_nobody_special() -> None:
    variables = dict(word.partition("=")[::2] for word in shlex.split(image("ENV")[0]))
    assert settings(variables) < set(WorkerConfig.model_fields)
    assert image("USER") == ["10001:10001"] and image("STOPSIGNAL") == ["SIGTERM"]
    assert variables["PROOFPOOL_WORKER_METRICS_ADDRESS"].endswith(f":{image('EXPOSE')[0]}")


def test_the_images_entry_point_is_a_command() -> None:
    (words,) = (yaml.safe_load(line) for line in image("ENTRYPOINT"))
    done = subprocess.run(
        [sys.executable, "-m", "protocol.cli", *words[1:], "--help"], capture_output=True, text=True, check=True
    )
    assert words[0] == "proofpool" and "Usage: proofpool worker run" in done.stdout


def test_the_images_health_check_tells_well_from_ill(tmp_path: Path) -> None:
    words = yaml.safe_load(image("HEALTHCHECK")[0].partition("CMD ")[2])
    clock = StillClock()
    activity = Activity(clock, "0.1.0")
    metrics = WorkerMetrics(activity, tmp_path, lambda: None, Counter)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    check = [sys.executable, "-c", words[2].replace(":9464/", f":{port}/")]
    assert subprocess.run(check, capture_output=True, check=False).returncode != 0, "nobody answers"
    with HealthServer(f"127.0.0.1:{port}", activity, metrics, stall_seconds=900):
        assert subprocess.run(check, check=False).returncode == 0
        clock.time += 1000
        assert subprocess.run(check, capture_output=True, check=False).returncode != 0


def test_the_compose_file_names_settings_and_mounts_its_secrets_where_they_are_looked_for() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    worker = compose["services"]["worker"]
    assert worker["profiles"] == ["worker"] and (DEPLOY / worker["build"]["context"]).resolve() == ROOT
    assert (ROOT / worker["build"]["dockerfile"]).exists()
    of_image = dict(word.partition("=")[::2] for word in shlex.split(image("ENV")[0]))
    given = settings({**of_image, **worker["environment"]})
    required = {name for name, field in WorkerConfig.model_fields.items() if field.is_required()}
    assert required <= given < set(WorkerConfig.model_fields)
    mounted = {f"/run/secrets/{name}" for name in worker["secrets"]}
    assert mounted == {of_image[f"{PREFIX}KEYSTORE"], of_image[f"{PREFIX}PASSWORD_FILE"]}
    assert set(worker["secrets"]) == set(compose["secrets"])
    assert worker["ports"] == ["127.0.0.1:9464:9464"] and worker["read_only"] and worker["cap_drop"] == ["ALL"]
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines(), "no secret is committed"
