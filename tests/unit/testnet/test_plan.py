"""What can be asked of a testnet, and what can't."""

from __future__ import annotations

import tomllib

import pytest

from protocol.cli import run
from protocol.errors import UsageError
from testnet.plan import CHEATS, Plan, parse_cheats
from testnet.roles import to_toml


def test_cheats_are_named_and_multiplied() -> None:
    assert parse_cheats([]) == ()
    assert parse_cheats(["none"]) == ()
    assert parse_cheats(["cherry-pick:2", "forged-proof"]) == ("cherry-pick", "cherry-pick", "forged-proof")


@pytest.mark.parametrize("flag", ["honest", "cherry-pick:x", "cherry-pick:-1", ""])
def test_unknown_cheats_are_a_usage_error_that_lists_the_kinds(flag: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_cheats([flag])
    assert all(kind in error.value.todo for kind in CHEATS)


def test_a_run_needs_a_folder_of_its_own(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").write_text("a run")  # type: ignore[operator]
    assert run(["testnet", "up", "--run-dir", str(tmp_path)]) == 2
    assert "isn't empty" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [{"num_verifiers": 1}, {"num_steps": 0}, {"cheats": ("honest",)}, {"extra": 1}])
def test_a_plan_that_can_not_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Plan.model_validate(wrong)


def test_settings_survive_toml() -> None:
    settings = {
        "url": 'http://x/"quoted"',
        "port": 5,
        "rate": 0.5,
        "on": True,
        "list": ["a", "b"],
        "recipe": {"lr": 1e-3, "objective": {"kl": 0.5, "clip": {"delta": 4}}},
        "scale": {},
    }
    assert tomllib.loads(to_toml(settings)) == settings
