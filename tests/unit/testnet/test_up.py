"""`proofpool testnet up` from flags to exit code, with the run itself left out."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.cli import run as run_command
from protocol.errors import ProofpoolError
from testnet import up
from testnet.plan import Plan
from testnet.ports import HOST, Ports
from testnet.run import Run
from testnet.summary import Summary
from testnet.table import Progress
from testnet.tally import Tally
from tests.unit.testnet.summaries import SUMMARY

FAILED = SUMMARY.model_copy(update={"checks": {"audit": False}})


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Runs whose processes were ended."""
    found: list[Run] = []
    monkeypatch.setattr(Run, "stop", lambda run: found.append(run))
    return found


def follow(monkeypatch: pytest.MonkeyPatch, outcome: Callable[[], Summary]) -> None:
    """Have every run come to `outcome`."""
    monkeypatch.setattr(up, "_follow", lambda run, clock, console, *, keep: outcome())


def fail(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(("summary", "code"), [(SUMMARY, 0), (FAILED, 1)])
def test_json_is_one_document_on_stdout_and_nothing_else(
    summary: Summary,
    code: int,
    tmp_path: Path,
    stopped: list[Run],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    follow(monkeypatch, lambda: summary)
    assert run_command(["testnet", "up", "--json", "--run-dir", str(tmp_path / "run")]) == code
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert Summary.model_validate(json.loads(out)) == summary
    assert len(stopped) == 1


def test_people_get_a_summary_with_commands_that_check_it(
    tmp_path: Path, stopped: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(monkeypatch, lambda: FAILED)
    assert run_command(["testnet", "up", "--run-dir", str(tmp_path / "run")]) == 1
    captured = capsys.readouterr()
    assert not captured.out
    assert "0.400 -> 0.550" in captured.err
    assert "✗ audit" in captured.err
    command = f"audit verify {SUMMARY.audited[0]} --bundle /runs/0001/bundles/{SUMMARY.audited[0]}.json"
    assert f"{command} --trusted-head {SUMMARY.trusted_head}\n" in captured.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--workers", "0"], 2, "num_workers"),
        (["--verifiers", "1"], 2, "num_verifiers"),
        (["--steps", "0"], 2, "num_steps"),
        (["--cheat", "kindness"], 2, "no such cheat"),
    ],
)
def test_flags_that_can_not_be_are_three_lines_and_no_run(
    arguments: list[str], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["testnet", "up", "--run-dir", str(tmp_path / "run"), *arguments]) == code
    error = capsys.readouterr().err
    assert told in error
    assert len(error.splitlines()) == 3
    assert not (tmp_path / "run").exists()


def test_what_has_no_flag_comes_from_the_environment(
    tmp_path: Path, stopped: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROOFPOOL_TESTNET_GROUPS_PER_STEP", "8")
    follow(monkeypatch, lambda: SUMMARY)
    assert run_command(["testnet", "up", "--json", "--run-dir", str(tmp_path / "run")]) == 0
    assert stopped[0].plan.groups_per_step == 8


def test_a_chain_that_does_not_answer_is_three_lines_and_exit_code_5(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ports(1) as ports:
        url = f"http://{HOST}:{ports.numbers[0]}"
        assert run_command(["testnet", "up", "--run-dir", str(tmp_path / "run"), "--chain", url]) == 5
    error = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0].strip() for line in error[-3:]] == ["error", "why", "do"]
    assert url in error[-2]


def test_a_full_disk_ends_the_run_in_three_lines(
    tmp_path: Path, stopped: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(monkeypatch, lambda: fail(OSError(28, "No space left on device")))
    assert run_command(["testnet", "up", "--run-dir", str(tmp_path / "run")]) == 1
    assert len(stopped) == 1
    assert "disk is full" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert run_command(["testnet", "up", "--run-dir", str(tmp_path / "other")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert len(stopped) == 1


def test_sigterm_ends_a_run_as_ctrl_c_does(
    tmp_path: Path, stopped: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    follow(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTERM) or SUMMARY)
    assert run_command(["testnet", "up", "--json", "--run-dir", str(tmp_path / "run")]) == 130
    assert len(stopped) == 1
    assert not capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("is_kept", "waited", "is_over"), [(False, 1, True), (True, 1, False), (True, 11, True)])
def test_a_run_that_is_kept_may_take_as_long_as_it_gets_on(
    is_kept: bool, waited: float, is_over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 seconds, ten of which are allowed: a kept run counts those without progress."""
    times = iter([0.0, *[100.0] * 8])
    clock = SimpleNamespace(now=lambda: next(times), wait=lambda stop, seconds: False)
    run = Run(Plan(timeout_seconds=10), tmp_path, clock)
    done = iter([False, True])
    monkeypatch.setattr(run, "is_done", lambda: next(done))
    monkeypatch.setattr(run, "turn", lambda: None)
    progress = Progress(tally=Tally(), num_steps=3, waiting="the trainer to take step 2", waiting_seconds=waited)
    monkeypatch.setattr(run, "progress", lambda: progress)
    if not is_over:
        run.run_until_done(is_kept=is_kept)
        return
    with pytest.raises(ProofpoolError, match="in time") as error:
        run.run_until_done(is_kept=is_kept)
    assert "`timeout_seconds` is 10" in error.value.why and "--timeout-seconds" in error.value.todo


def test_a_run_is_done_once_its_workers_have_ended_and_the_log_was_read_after_that(tmp_path: Path) -> None:
    """A worker that is asked to stop may take one more task on its way out."""
    run = Run(Plan(num_steps=1, num_workers=1, cheats=()), tmp_path, SimpleNamespace(now=lambda: 0.0))
    tally, up = Tally(policy_version=1), [True]
    tally.node(run.accounts.providers[0].node.address).received = 1
    run.observer = SimpleNamespace(tally=tally, look=lambda: None)
    run.arrivals = SimpleNamespace(look=lambda: None)
    run.node = SimpleNamespace(process=None)
    worker = SimpleNamespace(
        was_started=True,
        is_running=lambda: up[0],
        revive=lambda: False,
        check=lambda: None,
        ask_to_stop=lambda: None,
    )
    run.processes = {"worker-0": worker}
    run.turn()
    assert not run.is_done()
    up[0] = False
    assert not run.is_done()  # it ended after the last look
    run.turn()
    assert run.is_done()
