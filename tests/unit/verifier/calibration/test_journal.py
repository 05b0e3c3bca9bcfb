"""The journal: what was measured is there after any kill, and never taken for another run's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import UsageError
from verifier.calibration.journal import HONEST, Entry, Journal, num_kept
from verifier.calibration.output import check_output

HEADER = {"plan": {"num_submissions": 3}, "seed": 0}


def entry_of(number: int, make_observation: Callable[..., object]) -> Entry:
    return Entry(HONEST, number, "torch", "torch", (make_observation(num_tokens=number + 1),))  # type: ignore[arg-type]


def test_entries_come_back_as_they_were(tmp_path: Path, make_observation: Callable[..., object]) -> None:
    path = tmp_path / "out.unfinished"
    entries = [entry_of(number, make_observation) for number in range(3)]
    with Journal.open(path, HEADER, resume=False) as journal:
        for entry in entries:
            journal.append(entry)
    with Journal.open(path, HEADER, resume=True) as again:
        assert again.entries == entries
        assert again.has(HONEST, 2, "torch")
        assert not again.has(HONEST, 3, "torch")
    assert num_kept(path) == 3
    assert num_kept(tmp_path / "none") == 0


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path, make_observation: Callable[..., object]) -> None:
    path = tmp_path / "out.unfinished"
    with Journal.open(path, HEADER, resume=False) as journal:
        for number in range(2):
            journal.append(entry_of(number, make_observation))
    path.write_bytes(path.read_bytes()[:-7])
    with Journal.open(path, HEADER, resume=True) as again:
        assert [entry.number for entry in again.entries] == [0]
        again.append(entry_of(1, make_observation))
    with Journal.open(path, HEADER, resume=True) as whole:
        assert [entry.number for entry in whole.entries] == [0, 1]


def test_another_runs_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.unfinished"
    Journal.open(path, HEADER, resume=False).close()
    with pytest.raises(UsageError, match="wasn't finished"):
        Journal.open(path, HEADER, resume=False).close()
    with pytest.raises(UsageError, match="another one"):
        Journal.open(path, HEADER | {"seed": 1}, resume=True)
    path.write_text("{nonsense\n")
    with pytest.raises(UsageError, match="can't be read"):
        Journal.open(path, HEADER, resume=True)


def test_two_processes_never_go_on_with_one_journal(tmp_path: Path, make_observation: Callable[..., object]) -> None:
    path = tmp_path / "out.unfinished"
    with Journal.open(path, HEADER, resume=False) as journal:
        for resume in (True, False):
            with pytest.raises(UsageError, match="another process"):
                Journal.open(path, HEADER, resume=resume)
            with pytest.raises(UsageError, match="another process"):  # before anything is loaded
                check_output(tmp_path / "out", overwrite=False, resume=resume)
        journal.append(entry_of(0, make_observation))
    check_output(tmp_path / "out", overwrite=False, resume=True)
    with Journal.open(path, HEADER, resume=True) as again:
        assert [entry.number for entry in again.entries] == [0]


def test_a_journal_that_is_removed_while_it_is_opened_isnt_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.unfinished"
    monkeypatch.setattr("verifier.calibration.output.fcntl.flock", lambda file, how: path.unlink())
    with pytest.raises(UsageError, match="just finished"):
        Journal.open(path, HEADER, resume=True)
