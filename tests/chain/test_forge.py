"""The contracts' own tests and their recompilation, where Node.js and the packages of contracts/ are there."""

import shutil
import subprocess
from pathlib import Path

import pytest

import contracts

FOLDER = Path(contracts.__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js"),
    pytest.mark.skipif(not (FOLDER / "node_modules" / "solc").is_dir(), reason="needs `make anvil` (npm ci)"),
]


def run_script(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", "run", "--silent", name], cwd=FOLDER, capture_output=True, text=True, timeout=580, check=False
    )


def test_recompiling_gives_the_committed_artifacts_to_the_byte():
    result = run_script("check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_failing_test_fails_the_command(tmp_path):
    for name in ("forge.cjs", "solc.cjs", "foundry.toml"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(FOLDER / "node_modules")
    (tmp_path / "test").mkdir()
    for body, code in (("revert();", 1), ("", 0)):
        test = f"pragma solidity 0.8.37; contract T {{ function test() public pure {{ {body} }} }}"
        (tmp_path / "test" / "T.t.sol").write_text(test)
        command = ["node", "forge.cjs", "test", "--offline"]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=280, check=False).returncode == code


def test_forge_finds_no_fault():
    result = run_script("test")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr
    assert " 0 failed, 0 skipped" in result.stdout
