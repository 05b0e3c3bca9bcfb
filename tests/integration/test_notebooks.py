"""The notebooks of examples/ run from top to bottom against a real coordinator and chain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import VerificationFailed
from tests.integration.conftest import World
from tests.integration.served import served

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cells(notebook: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, code in enumerate(code_of(notebook)):
            exec(compile(code, f"{notebook.name}[{number}]", "exec"), names)
    finally:
        names["client"].close()
        names["contracts"].client.rpc.close()


@pytest.fixture
def pool(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A pool that somebody serves, with paid work, as the notebooks find one."""
    world.accept()
    world.close_epoch()
    with served(world) as url:
        monkeypatch.setenv("PROOFPOOL_COORDINATOR_URL", url)
        monkeypatch.setenv("PROOFPOOL_CHAIN_URL", world.contracts.client.rpc.url)
        monkeypatch.setenv("PROOFPOOL_LEDGER", world.contracts.addresses.ledger)
        yield world


def test_a_submission_is_verified(pool: World, capsys: pytest.CaptureFixture[str]) -> None:
    run_cells(FOLDER / "verify_a_submission.ipynb")
    told = capsys.readouterr().out
    assert "signed by its node" in told and "\nok (anchored: chain 31337" in told
    *_, lie = told.splitlines()
    assert lie.startswith("✗")


def test_a_history_is_audited(pool: World, capsys: pytest.CaptureFixture[str]) -> None:
    run_cells(FOLDER / "audit_a_history.ipynb")
    told = capsys.readouterr().out
    assert "1 submission.accepted" in told and f"{pool.node.address}  accepted" in told
    assert "\nok (anchored: chain 31337" in told


def test_a_log_that_was_rewritten_is_not_read(pool: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pool.coordinator.writing() as session:
        session.connection().exec_driver_sql("UPDATE event SET document = x'7b7d' WHERE type = 'submission.accepted'")
    with pytest.raises(VerificationFailed):
        run_cells(FOLDER / "audit_a_history.ipynb")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_results_are_committed(notebook: Path) -> None:
    """They would be somebody's, of one day, and no test would hold them true."""
    for cell in json.loads(notebook.read_text())["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)


def test_both_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["audit_a_history", "verify_a_submission"]
