"""The table of a run, on a terminal and elsewhere."""

from __future__ import annotations

import io

from testnet.table import Progress, RunTable, Worker, summary_line
from testnet.tally import Tally

WORKERS = [Worker("worker-0", "0x" + "0a" * 20, None), Worker("worker-1", "0x" + "0b" * 20, "forged-proof")]


def progress(seconds: float = 9.0, waiting: str = "the trainer") -> Progress:
    tally = Tally(step=2, policy_version=2, accepted_ids=["a", "b"])
    tally.node(WORKERS[1].address).rejected["proof_malformed"] = 1
    tally.rejected_ids["c"] = "proof_malformed"
    return Progress(tally, num_steps=3, seconds=seconds, waiting=waiting, waiting_seconds=seconds - 5)


def test_each_change_is_a_line_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with RunTable(WORKERS, out) as table:
        table.update(progress())
        table.update(progress())
    assert out.getvalue().splitlines() == [f"[    9 s] {summary_line(progress())}  waiting for the trainer"]
    assert "step 2/3" in out.getvalue()
    assert "proof_malformed×1" in out.getvalue()


def test_there_is_a_line_every_30_s_even_where_nothing_changes() -> None:
    out = io.StringIO()
    with RunTable(WORKERS, out) as table:
        for seconds in range(9, 80):
            table.update(progress(seconds))
    assert out.getvalue().splitlines()[1:] == [
        "[   39 s] waiting for the trainer since 34 s",
        "[   69 s] waiting for the trainer since 64 s",
    ]


def test_what_is_waited_for_is_told_at_once() -> None:
    out = io.StringIO()
    with RunTable(WORKERS, out) as table:
        table.update(progress(9))
        table.update(progress(10, "groups"))
    assert out.getvalue().splitlines()[1].endswith("waiting for groups")


def test_a_kill_is_told_once() -> None:
    out = io.StringIO()
    with RunTable(WORKERS, out) as table:
        for names in ([], ["worker-0"], ["worker-0"], ["worker-0", "trainer"]):
            seen = progress()
            seen.restarted = names
            table.update(seen)
    told = [line for line in out.getvalue().splitlines() if "was killed" in line]
    assert [line.split()[3] for line in told] == ["worker-0", "trainer"]


def test_the_picture_names_each_worker_and_what_it_is() -> None:
    table = RunTable(WORKERS, io.StringIO())
    table.console.print(table._picture(progress()))
    drawn = table.console.file.getvalue()  # type: ignore[attr-defined]
    assert "(forged-proof)" in drawn
    assert "1 proof_malformed" in drawn
