"""Command lines to paste."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from testnet.hints import live_commands, offline_commands, program

HASH = "0x" + "ab" * 32


def test_the_program_is_called_as_it_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / ".venv" / "bin" / "proofpool"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert program([str(installed)]) == ".venv/bin/proofpool"
    monkeypatch.setattr(shutil, "which", lambda name: "/elsewhere/bin/proofpool")
    assert program([str(installed)]) == ".venv/bin/proofpool"
    monkeypatch.setattr(shutil, "which", lambda name: str(installed))
    assert program([str(installed)]) == "proofpool"
    assert program(["-m"]) == f"{shlex.quote(sys.executable)} -m protocol.cli"


def test_paths_survive_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = offline_commands([HASH], tmp_path / "my runs" / "bundles", "3:40:0x00")
    assert shlex.split(line)[-4:] == ["--bundle", f"my runs/bundles/{HASH}.json", "--trusted-head", "3:40:0x00"]
    (elsewhere,) = offline_commands([HASH], Path("/far/bundles"), "3:40:0x00")
    assert f"/far/bundles/{HASH}.json" in elsewhere


def test_a_run_that_is_up_is_asked_at_its_addresses() -> None:
    trace, verify, money = live_commands(HASH, "http://c:1", "http://n:2", "0x11")
    assert trace.endswith(f"trace {HASH} --coordinator http://c:1")
    assert verify.endswith(f"audit verify {HASH} --coordinator http://c:1 --chain http://n:2 --ledger 0x11")
    assert money.endswith("audit money --coordinator http://c:1 --chain http://n:2 --ledger 0x11")
