"""The scripts in deploy/: whole bash, and what they end up calling."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FAKES = {
    "torchrun": 'echo "$@"',
    "scontrol": "echo first; echo second",
    "srun": 'shift; SLURM_NODEID=1 exec "$@"',
}


def run(script: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    for name, text in FAKES.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", str(DEPLOY / script), *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("script", ["torchrun.sh", "trainer.slurm"])
def test_a_script_is_whole(script: str) -> None:
    subprocess.run(["bash", "-n", str(DEPLOY / script)], check=True)


def test_each_machine_starts_its_ranks_of_one_trainer(tmp_path: Path) -> None:
    done = run("torchrun.sh", tmp_path, "my.toml", NODES="3", NODE="1", FIRST="10.0.0.1", RANKS="2")
    expected = "--nnodes 3 --node-rank 1 --nproc-per-node 2 --master-addr 10.0.0.1 --master-port 29500"
    assert done.stdout == f"{expected} -m trainer run --config my.toml\n"


def test_a_slurm_job_names_its_first_machine_and_each_ones_number(tmp_path: Path) -> None:
    slurm = {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "first,second",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_SUBMIT_DIR": str(DEPLOY.parent),
    }
    printed = run("trainer.slurm", tmp_path, "my.toml", **slurm).stdout
    assert "--nnodes 2 --node-rank 1 --nproc-per-node 8 --master-addr first --master-port 20077" in printed


@pytest.mark.parametrize("script", ["torchrun.sh", "trainer.slurm"])
def test_without_a_configuration_nothing_starts(tmp_path: Path, script: str) -> None:
    done = run(script, tmp_path, RANKS="2")
    assert done.returncode != 0 and "TOML" in done.stderr and done.stdout == ""
