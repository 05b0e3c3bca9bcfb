"""A finished run is read, not run again; what was cut short, or was made with other settings, is run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from protocol.checks.basis import read_document
from protocol.rules import Rules
from tests.bench.curves import runs
from tests.bench.curves.arms import ARMS, Arm
from tests.bench.curves.runs import finished, run, settings

ARM = Arm("small", lag=1, num_steps=1, groups_per_step=1, evaluate_every=1)


@pytest.fixture(autouse=True)
def few_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "NUM_HELD_BACK", 4)


def test_what_is_finished_stays_and_what_is_not_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run(ARM, 0, tmp_path)
    assert [line["step"] for line in lines] == [0, 1]
    assert not (tmp_path / "small" / "0" / "versions").exists()

    def refuse(*_: object) -> None:
        raise RuntimeError("run again")

    with monkeypatch.context() as patched:
        patched.setattr(runs, "rehearse", refuse)
        assert run(ARM, 0, tmp_path) == lines
        with pytest.raises(RuntimeError, match="run again"):
            run(ARM, 1, tmp_path)
    assert finished(settings(dataclasses.replace(ARM, lag=0), 0, tmp_path)) is None
    metrics = tmp_path / "small" / "0" / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:1]))
    assert finished(settings(ARM, 0, tmp_path)) is None
    again = run(ARM, 0, tmp_path)
    assert [{**line, "seconds": 0} for line in again] == [{**line, "seconds": 0} for line in lines]


def test_a_filtered_arm_draws_the_kept_problems_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "NUM_MEASURED", 16)
    filtered = dataclasses.replace(ARM, is_filtered=True)
    kept = list(runs.filter_report(tmp_path).indexes)
    assert 0 < len(kept) < 16
    for arm, only in ((filtered, kept), (ARM, None)):
        rules = read_document(settings(arm, 0, tmp_path).rules, Rules)
        assert rules.environment.config.get("only") == only


def test_arms_that_are_compared_differ_in_one_thing() -> None:
    def differences(one: str, other: str) -> set[str]:
        fields = dataclasses.asdict(ARMS[one]), dataclasses.asdict(ARMS[other])
        return {name for name, value in fields[0].items() if value != fields[1][name]} - {"name"}

    assert differences("lag-0", "lag-4") == {"lag"}
    assert differences("lag-2", "offline-filter") == {"is_filtered"}
    one, two = (ARMS[name].recipe for name in ("one-sided-2e-4", "two-sided-2e-4"))
    assert {name for name in one if one[name] != two[name]} == {"objective"}
