"""The command line: quick help, exit codes, errors in three lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protocol import cli, doctor
from protocol.errors import (
    ChainError,
    KeyFailure,
    NotEligible,
    ProofpoolError,
    Rejected,
    UsageError,
    VerificationFailed,
)
from protocol.reasons import RejectReason
from tests.documents import fitting

HEAVY = ("torch", "vllm", "web3", "fastapi", "sqlalchemy", "transformers", "pyarrow", "numpy", "uvicorn", "numba")


def test_what_a_stranger_wrote_into_an_error_fakes_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ProofpoolError("refused\x1b[2J", "it says\nok (anchored)", "ask \u009bit")

    monkeypatch.setattr(doctor, "doctor", fail)
    assert cli.run(["doctor"]) == 1
    printed = capsys.readouterr().err.splitlines()
    assert printed == ["error: refused?[2J", "  why: it says?ok (anchored)", "  do:  ask ?it"]


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from protocol.cli import run; run(['--help']); "
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.rstrip().endswith("LOADED []")
    assert all(name in out for name in cli.COMMANDS)
    assert "Exit codes" in out


HELP_OF_ALL = """
import contextlib, io, sys
from protocol.cli import load_command, run
def walk(command, words):
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from walk(child, [*words, name])
    yield words
for words in list(walk(load_command(sys.argv[1]), [sys.argv[1]])):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run([*words, "--help"]) == 0
    assert "Usage" in printed.getvalue()
    print(" ".join(words), *sorted(set(sys.argv[2:]) & set(sys.modules)))
"""


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_each_command_loads_nothing_heavy(name: str) -> None:
    """What makes help slow is what it imports: said here by name, since a busy machine's seconds say nothing."""
    done = subprocess.run([sys.executable, "-c", HELP_OF_ALL, name, *HEAVY], capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if set(line.split()) & set(HEAVY)] == []
    assert name in done.stdout.splitlines()[-1]


def test_what_a_command_logs_is_not_among_its_data() -> None:
    code = "from protocol.telemetry import get_logger; get_logger().info('seat.implicated', seat=3); print('{}')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n" and "seat.implicated" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProofpoolError("w"), 1),
        (UsageError("w"), 2),
        (VerificationFailed("w"), 3),
        (KeyFailure("w"), 4),
        (ChainError("w"), 5),
        (NotEligible("w"), 6),
        (Rejected(RejectReason.DUPLICATE), 7),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_ends_with_its_exit_code_and_no_traceback(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(doctor, "doctor", fail)
    assert cli.run(["doctor"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_interruption_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "doctor", interrupted)
    assert cli.run(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    monkeypatch.setattr(doctor, "doctor", lambda: None)
    assert cli.run(["doctor"]) == 0
    assert capsys.readouterr().err == ""


def test_an_error_prints_what_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ProofpoolError("it broke", "7 > 5", "lower it")

    monkeypatch.setattr(doctor, "doctor", fail)
    cli.run(["doctor"])
    assert capsys.readouterr().err.splitlines() == ["error: it broke", "  why: 7 > 5", "  do:  lower it"]
    assert cli.run(["--debug", "doctor"]) == 1
    *trace, what, _, _ = capsys.readouterr().err.splitlines()
    assert trace[0].startswith("Traceback") and what == "error: it broke"


@pytest.mark.parametrize("arguments", [["nonsense"], ["doctor", "--nonsense"]])
def test_a_wrong_call_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    assert "nonsense" in capsys.readouterr().err


def test_doctor_finds_this_checkouts_packages_and_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--json"]) == 0
    found = fitting("doctor", capsys.readouterr().out)
    assert not [finding for finding in found["findings"] if finding["status"] == "error"]


def test_doctor_names_a_package_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROOMS", ("json",))
    wrong = [finding for finding in doctor.findings() if finding.status == "error"]
    assert [finding.check for finding in wrong] == ["package json"]
    assert "fresh virtual environment" in wrong[0].fix


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["coordinator", "serve", "--config", "FOLDER"], 2),
        (["worker", "run", "--config", "FOLDER/none.toml"], 2),
        (["shardcast", "serve", "FOLDER", "--port", "99999"], 2),
        (["shardcast", "serve", "FOLDER", "--host", "300.1.1.1"], 1),
        (["shardcast", "serve", "FOLDER/file/below"], 1),
        (["audit", "verify", "0x12", "--bundle", "FOLDER"], 2),
    ],
)
def test_paths_and_addresses_that_cant_be_used_are_no_traceback(
    arguments: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert cli.run([argument.replace("FOLDER", str(tmp_path)) for argument in arguments]) == code
    said = capsys.readouterr().err
    assert said and "Traceback" not in said


def test_debug_shows_what_the_machine_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert cli.run(["--debug", "shardcast", "serve", str(tmp_path / "file" / "below")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback") and "shardcast" in said and "error: this machine refused" in said


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("proofpool ")


@pytest.mark.parametrize("command", [["trace"], ["audit", "verify"], ["audit", "bundle", "--out", "file"]])
@pytest.mark.parametrize("wrong", ["nonsense", "0x12", "0x" + "zz" * 32])
def test_what_is_no_submission_id_is_refused_before_anybody_is_asked(
    command: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*command, wrong]) == 2
    assert "64 hexadecimal digits" in capsys.readouterr().err


def test_what_is_no_ledger_is_refused_before_anybody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "money", "--chain", "http://127.0.0.1:1", "--ledger", "0x12"]) == 2
    assert "40 hexadecimal digits" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--ledger", "0x" + "11" * 20, "--trusted-head", "1:2:0x" + "00" * 32],
        ["--chain", "http://127.0.0.1:1", "--trusted-head", "1:2:0x" + "00" * 32],
    ],
)
def test_an_audit_passes_over_no_flag(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PROOFPOOL_CHAIN_URL", raising=False)
    assert cli.run(["audit", "verify", "0x" + "00" * 32, *flags]) == 2
    assert "--chain" in capsys.readouterr().err


def test_a_file_that_is_no_bundle_is_an_error_in_three_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bundle.json").write_text("{}")
    assert cli.run(["audit", "verify", "0x" + "00" * 32, "--bundle", str(tmp_path / "bundle.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_missing_configuration_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["worker", "status"]) == 2
    printed = capsys.readouterr().err
    assert "lacks `coordinator_url`" in printed and "--config" in printed
