"""The environment in which TRL runs: a venv with `requirements.txt` and the trainer's own requirements.

Kept in pytest's cache under the hash of what it is made from; making it takes a package registry and some minutes once.
`PROOFPOOL_TRL_PYTHON` names another interpreter that has both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="session")
def trl_python(request: pytest.FixtureRequest) -> Path:
    """A Python that has TRL and the trainer."""
    if named := os.environ.get("PROOFPOOL_TRL_PYTHON"):
        return Path(named)
    assert request.config.cache is not None
    files = (HERE / "requirements.txt", ROOT / "pyproject.toml")
    key = sha256(b"".join(file.read_bytes() for file in files) + sys.version.encode()).hexdigest()[:16]
    folder = request.config.cache.mkdir("trl") / key
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, *PIP, "--requirement", HERE / "requirements.txt", f"{ROOT}[trainer]"], check=True)
        (folder / "complete").touch()
    return python


def ask(python: Path, module: str, **question: Any) -> Any:
    """What `module` of this folder answers, run by `python`: JSON in, and the last line of its output."""
    threads = str(question.get("threads", 1))
    # Threads that wait for each other sleep: where another process has a core, spinning ones would measure that.
    openmp = {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive"}
    environment = os.environ | openmp | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    command = [str(python), "-m", f"tests.bench.trl.{module}", json.dumps(question)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-4000:]}"
    return json.loads(done.stdout.strip().rpartition("\n")[2])
