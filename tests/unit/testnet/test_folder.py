"""The run folder: new, writable, with room; else an error in words."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import ProofpoolError, UsageError
from testnet.folder import LEAST_BYTES, check_room, new_folder, written_in


def disk_with(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free_bytes))


def test_a_run_without_a_folder_gets_the_next_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [new_folder(None).name for _ in range(2)] == ["0001", "0002"]
    (tmp_path / "runs" / "0041").mkdir()
    (tmp_path / "runs" / "notes").mkdir()
    assert new_folder(None) == tmp_path / "runs" / "0042"


def test_a_folder_that_is_named_is_made(tmp_path: Path) -> None:
    assert new_folder(tmp_path / "a" / "b").is_dir()


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("a run")
    with pytest.raises(UsageError, match="isn't empty"):
        new_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    new_folder(tmp_path / "run")
    with pytest.raises(UsageError, match="isn't empty"):
        new_folder(tmp_path / "run")


def test_a_folder_that_can_not_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be made") as error:
        new_folder(tmp_path / "file" / "run")
    assert "--run-dir" in error.value.todo


def test_a_full_disk_is_told_with_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_with(monkeypatch, LEAST_BYTES)
    check_room(tmp_path)
    with pytest.raises(ProofpoolError, match=r"disk is full.*16 MiB free, 256 MiB needed"):
        new_folder(tmp_path / "run")
    disk_with(monkeypatch, LEAST_BYTES - 1)
    with pytest.raises(ProofpoolError, match="15 MiB free, 16 MiB needed"):
        check_room(tmp_path)


def test_a_write_that_fails_is_an_error_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(ProofpoolError, match="disk is full"), written_in(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ProofpoolError, match="can't be used.*gone"), written_in(tmp_path):
        (tmp_path / "gone" / "file").write_text("")


def test_what_is_no_matter_of_files_passes(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), written_in(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    with pytest.raises(UsageError), written_in(tmp_path):
        raise UsageError("no")
