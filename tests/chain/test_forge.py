"""The contracts' own tests and their recompilation, where Node.js and the packages of contracts/ are there."""

import shutil
import subprocess
from pathlib import Path

import pytest

import contracts

FOLDER = Path(contracts.__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js"),
    pytest.mark.skipif(not (FOLDER / "node_modules" / "solc").is_dir(), reason="needs `make anvil` (npm ci)"),
]


def run_script(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", "run", "--silent", name], cwd=FOLDER, capture_output=True, text=True, timeout=280, check=False
    )


def test_recompiling_gives_the_committed_artifacts_to_the_byte():
    result = run_script("check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_forge_finds_no_fault():
    result = run_script("test")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr
    assert " 0 failed, 0 skipped" in result.stdout
