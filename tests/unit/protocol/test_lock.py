"""One process a data folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from protocol.lock import FolderLock

HOLD = (
    "import pathlib, sys; from protocol.lock import FolderLock\n"
    "with FolderLock(pathlib.Path(sys.argv[1]), 'verifier'):\n    print('held', flush=True); sys.stdin.read()\n"
)


def test_a_second_holder_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="another verifier uses this data folder"):
            FolderLock(tmp_path, "verifier")
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with FolderLock(tmp_path, "verifier"):
        pass


def test_folders_are_locked_each_by_itself(tmp_path: Path) -> None:
    with FolderLock(tmp_path / "a", "worker"), FolderLock(tmp_path / "b", "worker"):
        pass
