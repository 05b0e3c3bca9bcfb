"""Environments that the tests make once: a venv with other people's Python, a folder with OpenZeppelin's merkle-tree.

They are kept in pytest's cache under the hash of what they are made from. Making one takes a package registry.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.coordinator.conftest import empty_database, portal, quiet_logs, site

__all__ = ["empty_database", "portal", "quiet_logs", "site"]

HERE = Path(__file__).resolve().parent


def environment(config: pytest.Config, *files: str) -> tuple[Path, bool]:
    """A folder for what `files` name, and whether it is complete."""
    named = sha256(b"".join((HERE / file).read_bytes() for file in files) + sys.version.encode()).hexdigest()[:16]
    assert config.cache is not None
    folder = config.cache.mkdir("independent") / named
    return folder, (folder / "complete").exists()


def start_anew(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


@pytest.fixture(scope="session")
def other_python(request: pytest.FixtureRequest) -> Path:
    """A Python that has pymerkle and rekor-verifier, and nothing of ours."""
    folder, is_complete = environment(request.config, "requirements.txt")
    python = folder / "venv" / "bin" / "python"
    if not is_complete:
        start_anew(folder)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        wanted = ["--require-hashes", "--no-deps", "--requirement", HERE / "requirements.txt"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], check=True)
        (folder / "complete").touch()
    return python


@pytest.fixture(scope="session")
def openzeppelin(request: pytest.FixtureRequest) -> Path:
    """A folder whose Node.js scripts find @openzeppelin/merkle-tree."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("Node.js isn't installed")
    folder, is_complete = environment(request.config, "package.json", "package-lock.json", "check_earnings.mjs")
    if not is_complete:
        start_anew(folder)
        for file in ("package.json", "package-lock.json", "check_earnings.mjs"):
            shutil.copy(HERE / file, folder / file)
        subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
        (folder / "complete").touch()
    return folder
