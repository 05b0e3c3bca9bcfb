"""The command line of the worker: quick to ask for help, clear about what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.cli import run

HEAVY = ("torch", "pyarrow", "web3", "transformers", "reasoning_gym", "httpx")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom protocol.cli import run\n"
        "assert run(['worker', '--help']) == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_process_that_runs_loads_neither_web3_nor_transformers() -> None:
    code = "import sys, worker.process\nprint([n for n in ('web3', 'transformers', 'fastapi') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "word"),
    [("coordinator_url = 3", "coordinator_url"), ("unknown_key = 1", "unknown_key"), ("= 1", "TOML")],
)
def test_a_wrong_configuration_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, word: str
) -> None:
    complete = 'chain_url = "c"\npool_id = 1\nkeystore = "k"\ndata_dir = "d"\n'
    name = "" if "coordinator_url" in text else 'coordinator_url = "u"\n'
    file = tmp_path / "worker.toml"
    file.write_text(complete + name + text)
    assert run(["worker", "run", "--config", str(file)]) == 2
    assert word in capsys.readouterr().err


def test_a_missing_key_ends_status_with_its_own_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "worker.toml"
    file.write_text(
        f'coordinator_url = "http://127.0.0.1:9"\nchain_url = "http://127.0.0.1:9"\npool_id = 1\n'
        f'keystore = "{tmp_path}/none.json"\npassword_file = "{tmp_path}/none"\ndata_dir = "{tmp_path}/data"\n'
    )
    assert run(["worker", "status", "--config", str(file)]) == 4
    assert "none" in capsys.readouterr().err
