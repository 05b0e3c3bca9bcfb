"""`python -m tests.attacks --tables`: pages are renewed from what was measured, and what wasn't is said."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.attacks import __main__ as command
from tests.attacks import report
from tests.attacks.document import DATA

TABLE = "<!-- attacks: matrix tiny.float32 -->\nold\n<!-- end -->\n"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with one table, and no figures yet."""
    page = tmp_path / "verification.md"
    page.write_text(TABLE)
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(report, "DATA", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tests.attacks", "--tables"])
    return page


def test_tables_without_figures_are_named(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main() == 2
    said = capsys.readouterr()
    assert f"not measured: {page.parent / 'attacks.tiny.float32.json'} isn't there" in said.err
    assert "Not measured yet." in page.read_text()


def test_tables_with_figures_are_renewed(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(DATA / "attacks.tiny.float32.json", page.parent)
    assert command.main() == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out == f"{page} is renewed\n"
    assert "| attack | what differs |" in page.read_text()
