"""The contracts' own tests and their recompilation, where Node.js and the packages of contracts/ are there."""

import os
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


GAMES = ["node", "forge.cjs", "test", "--offline", "--match-path", "test/Conservation.t.sol"]
# What holds is looked at after each tenth call, and at the end of each game: what is lost then stays lost.
LONG = {"FOUNDRY_INVARIANT_RUNS": "1000", "FOUNDRY_INVARIANT_DEPTH": "52", "FOUNDRY_INVARIANT_CHECK_INTERVAL": "10"}


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


@pytest.mark.timeout(1200)
def test_a_hundred_thousand_random_calls_lose_no_wei():
    """Two campaigns side by side; the games of one seed are the same anywhere."""
    campaigns = [
        subprocess.Popen(
            [*GAMES, "--fuzz-seed", seed], cwd=FOLDER, env=os.environ | LONG, stdout=subprocess.PIPE, text=True
        )
        for seed in ("1", "2")
    ]
    for said in [campaign.communicate(timeout=1100)[0] for campaign in campaigns]:
        assert "(runs: 1000, calls: 52000, reverts: 0)" in said, said[-4000:]
        assert "1 tests passed, 0 failed" in said
