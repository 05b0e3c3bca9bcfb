"""The judge of math answers: right, behind walls, replaced when it dies, and sure only where any machine would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from protocol.environments import math_judge
from protocol.environments.base import Judgement
from protocol.environments.math_answers import comparison
from protocol.environments.math_judge import Finding, MathJudge, judgement_of
from protocol.errors import ConfigError

TABLE = Path(__file__).parents[3] / "data" / "math_answers.jsonl"
HOSTILE = [
    "9^{9^{9^{9}}}",
    "10^{10^{10}}",
    "1000000000!",
    "x^{x^{x^{x^{x}}}}=y^{y^{y^{y}}}",
    "(" * 32 + "1" + ")" * 32,
    "\\frac{" * 30 + "1" + "}{2}" * 30,
    "\\sqrt{" * 31 + "x" + "}" * 31,
    "\\int_0^1 e^{x^{x^x}}dx",
    "\\sum_{n=1}^{10^9} \\frac{1}{n^n}",
    "\\prod_{n=1}^{99999999} n",
    "(a+b+c+d+e+f+g+h)^{99}=0",
    "\\begin{pmatrix}" + "1&" * 900 + "1\\end{pmatrix}",
    "1" * 2_000,
    "\\left" * 300,
    "{" * 20,
    "\\\\" * 900,
    "\x00\x01\x1b[2J",
    "\ud800",
]
CODE = [
    "__import__('os').system('touch {file}')",
    "\\text{{__import__('os').system('touch {file}')}}",
    "\\operatorname{{open}}('{file}','w')",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    "lambda: open('{file}', 'w')",
]


@pytest.fixture(scope="module")
def judge() -> Iterator[MathJudge]:
    yield MathJudge(0.25)


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def is_right(judge: MathJudge, row: dict[str, Any]) -> bool:
    found = comparison(row["gold"], row["answer"])
    return judge.find(found.pairs).equal if found.decided is None else found.decided


def disagreements(judge: MathJudge, chosen: list[dict[str, Any]]) -> list[str]:
    """Where the judge isn't of the table's opinion, with the table's reason."""
    return [
        f"{row['gold']} | {row['answer']}: {row['why']}" for row in chosen if is_right(judge, row) != row["is_right"]
    ]


def test_the_table_is_large_and_has_both_kinds_of_each() -> None:
    table = rows()
    assert len(table) >= 200
    assert len({(row["gold"], row["answer"]) for row in table}) == len(table)
    assert all(row["why"] for row in table)
    for kind in {row["kind"] for row in table}:
        judgements = {row["is_right"] for row in table if row["kind"] == kind}
        assert judgements == {True, False}, kind


def test_every_twelfth_pair_of_the_table_is_judged_as_it_says(judge: MathJudge) -> None:
    assert disagreements(judge, rows()[::12]) == []


@pytest.mark.slow
def test_every_pair_of_the_table_is_judged_as_it_says(judge: MathJudge) -> None:
    assert disagreements(judge, rows()) == []


@pytest.mark.slow
@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_answer_neither_hangs_nor_breaks_the_judge(judge: MathJudge, answer: str) -> None:
    for gold in ("7", "x=y"):
        found = comparison(gold, answer)
        judgement = judge.judge(found.pairs) if found.decided is None else Judgement(float(found.decided))
        assert judgement.score == 0.0
    assert judge.judge([("\\frac{1}{2}", "0.5")]) == Judgement(1.0), "the next one is judged as ever"


def test_what_takes_too_long_is_ended_and_nobody_is_slashed_for_it(judge: MathJudge) -> None:
    deep = "(" * 1_500 + "1" + ")" * 1_500
    finding = judge.find([("1", deep)])
    assert finding.ended in ("limit", "fault") and finding.cpu_seconds < 3
    assert judge.judge([("1", deep)]) == Judgement(0.0, certain=False)
    assert judge.judge([("1", "1.0")]) == Judgement(1.0)


def test_an_answer_is_never_run(judge: MathJudge, tmp_path: Path) -> None:
    file = tmp_path / "written"
    for code in CODE:
        assert judge.judge([("1", code.format(file=file))]).score == 0.0
    assert not file.exists()


def test_the_judges_process_has_neither_secrets_nor_network_nor_this_machines_habits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PROOFPOOL_PASSWORD", "secret")
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    judge = MathJudge(1.0)
    assert judge.judge([("1", "1.0")]) == Judgement(1.0)
    assert judge._server is not None
    environment = Path(f"/proc/{judge._server._process.pid}/environ").read_text()
    assert "secret" not in environment and "PYTHONHASHSEED=0" in environment and "TZ=UTC" in environment


def test_a_judge_that_dies_is_replaced(judge: MathJudge) -> None:
    assert judge.judge([("2", "2.0")]) == Judgement(1.0)
    assert judge._server is not None
    dead = judge._server._process
    os.killpg(dead.pid, signal.SIGKILL)
    dead.wait()
    assert judge.judge([("3", "3.0")]) == Judgement(1.0)
    assert judge._server._process.pid != dead.pid


def test_a_judge_that_falls_silent_is_replaced_and_is_sure_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys,time; print('{\"ready\": true}', flush=True); sys.stdin.readline(); print('', flush=True)"
    monkeypatch.setattr(math_judge, "_command", lambda: [sys.executable, "-c", program])
    monkeypatch.setattr(math_judge.shutil, "which", lambda name: None)
    judge = MathJudge(1.0)
    assert judge.judge([("1", "1.0")]) == Judgement(0.0, certain=False)
    monkeypatch.undo()
    assert judge.judge([("2", "2.0")]) == Judgement(1.0)


def test_a_judge_that_cant_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; sys.exit('no module named math_verify')"
    monkeypatch.setattr(math_judge, "_command", lambda: [sys.executable, "-c", program])
    with pytest.raises(ConfigError, match="doesn't start") as error:
        MathJudge(1.0).judge([("1", "1.0")])
    assert "no module named math_verify" in error.value.why


def test_without_bubblewrap_the_verdict_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_judge.shutil, "which", lambda name: None)
    judge = MathJudge(1.0)
    assert [judge.judge([pair]).score for pair in (("1", "1.0"), ("1", "2"))] == [1.0, 0.0]
    assert judge._server is not None and judge._server._process.args[0] == sys.executable  # type: ignore[index]


def test_threads_share_one_judge(judge: MathJudge) -> None:
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda n: judge.judge([(str(n), f"{n % 3}.0")]).score, range(12)))
    assert scores == [float(n < 3) for n in range(12)]


FORKS = """
import os
from protocol.environments.math_judge import MathJudge
judge = MathJudge(1.0)
assert judge.judge([("5", "5.0")]).score == 1.0
mine = judge._server._process.pid
child = os.fork()
assert judge.judge([("6", "6.0")]).score == 1.0
print(judge._server._process.pid == mine, flush=True)
if child == 0:
    judge._server.end()
    os._exit(0)
os.waitpid(child, 0)
assert judge.judge([("7", "7.0")]).score == 1.0
print(judge._server._process.pid == mine, flush=True)
"""


def test_a_fork_starts_a_judge_of_its_own_and_leaves_its_parents_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=200)
    assert sorted(done.stdout.split()) == ["False", "True", "True"]


def test_nothing_is_left_when_a_judge_is_gone() -> None:
    judge = MathJudge(1.0)
    judge.judge([("1", "1.0")])
    assert judge._server is not None
    process = judge._server._process
    del judge
    assert process.poll() is not None


def test_a_process_that_ends_leaves_no_judge() -> None:
    program = (
        "from protocol.environments.math_judge import MathJudge\n"
        "j = MathJudge(1.0); j.judge([('1', '1.0')]); print(j._server._process.pid)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{done.stdout.strip()}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


@pytest.mark.parametrize(
    ("equal", "spent", "ended", "judgement"),
    [
        (True, 0.24, "done", Judgement(1.0)),
        (False, 0.24, "done", Judgement(0.0)),
        (True, 0.26, "done", Judgement(1.0, other=0.0, certain=False)),
        (True, 0.99, "done", Judgement(1.0, other=0.0, certain=False)),
        (True, 1.0, "done", Judgement(0.0, other=1.0, certain=False)),
        (True, 3.9, "done", Judgement(0.0, other=1.0, certain=False)),
        (False, 4.0, "limit", Judgement(0.0, certain=False)),
        (True, 0.1, "fault", Judgement(0.0, certain=False)),
    ],
)
def test_time_decides_with_a_margin(equal: bool, spent: float, ended: str, judgement: Judgement) -> None:
    assert judgement_of(Finding(equal, spent, ended), 1.0) == judgement


@pytest.mark.parametrize("factor", [0.26, 1.0, 3.9])
@pytest.mark.parametrize("spent", [0.01, 0.1, 0.24, 0.3, 0.6, 0.99, 1.1, 2.0, 3.9])
def test_a_slower_verifier_never_contradicts_a_faster_worker(spent: float, factor: float) -> None:
    """Whatever the worker claims, a verifier that is up to four times as fast or slow accepts it, or doesn't slash."""

    def on(seconds: float) -> Judgement:
        ended = "done" if seconds < 4 else "limit"
        return judgement_of(Finding(ended == "done", seconds, ended), 1.0)

    claim = on(spent).score
    verdict = on(spent * factor)
    assert verdict.allows(claim) or not verdict.certain
    assert verdict.allows(claim) or spent * factor >= 4
