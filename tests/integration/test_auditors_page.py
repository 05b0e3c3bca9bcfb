"""docs/auditors.md: from nothing to a verified submission, by the page's own three commands."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.cli import run
from tests.integration.conftest import World
from tests.integration.served import served

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "auditors.md"


def commands(world: World, url: str, submission_id: str) -> list[list[str]]:
    """The page's first block, its placeholders filled in."""
    lines = PAGE.read_text().splitlines()
    block = [line.strip() for line in lines if line.startswith("    ")][:3]
    names = {
        "--coordinator URL": f"--coordinator {url}",
        "--chain URL": f"--chain {world.contracts.client.rpc.url}",
        "--ledger 0x…": f"--ledger {world.contracts.addresses.ledger}",
        "HASH": submission_id,
    }
    filled = []
    for line in block:
        for name, value in names.items():
            line = line.replace(name, value)
        filled.append(shlex.split(line))
    return filled


@pytest.fixture
def page(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    monkeypatch.chdir(tmp_path)
    submission_id = world.accept()
    with served(world) as url:
        yield commands(world, url, submission_id)


def test_three_commands_verify_a_submission(page: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    install, *audits = page
    assert install == ["pip", "install", "proofpool"] and len(audits) == 2
    for command in audits:
        assert command[0] == "proofpool" and run(command[1:]) == 0
    assert "\nok (anchored: chain 31337" in capsys.readouterr().out


def test_another_submissions_bundle_is_no_answer(
    page: list[list[str]], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    _, keep, verify = page
    assert run(keep[1:]) == 0
    assert run([word.replace(keep[3], "0x" + "77" * 32) for word in verify[1:]]) == 3
    assert "✗ digest" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_they_do_on_a_machine_that_has_nothing(page: list[list[str]], tmp_path: Path) -> None:
    """In an environment of its own, with what the bare package brings: no torch, no database, no web framework."""
    install, *audits = page
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    environment = {"PATH": f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    for command in ([*install[:2], "-q", str(ROOT)], *audits):
        ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    assert "ok (anchored: chain 31337" in ran.stdout
    listed = subprocess.run(["pip", "list"], env=environment, capture_output=True, text=True, check=True).stdout
    assert not {"torch", "sqlalchemy", "fastapi", "numba"} & {line.split()[0] for line in listed.lower().splitlines()}
