"""Configuration: order of sources, unknown keys, and files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from protocol.config import Address, RoleConfig, load_config, write_resolved
from protocol.errors import ConfigError
from protocol.files import write_atomically


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rank: int = Field(default=1, ge=1)
    sides: tuple[int, ...] = ()


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rate: float = Field(default=1.0, gt=0)
    inner: Inner | None = None


class ExampleConfig(RoleConfig):
    url: str = "http://default"
    port: int = 1
    name: str = "default"
    contract: Address | None = None
    start: Literal["newest", "anew"] | Annotated[int, Field(ge=0)] = "newest"
    table: Table = Table()


def test_flags_beat_environment_beats_file_beats_defaults(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('url = "http://file"\nport = 2\n')
    config = load_config(
        ExampleConfig, "example", file, {"PROOFPOOL_EXAMPLE_PORT": "3"}, {"name": "flag", "port": None, "url": None}
    )
    assert config == ExampleConfig(url="http://file", port=3, name="flag")


@pytest.mark.parametrize(
    ("toml", "environment", "named"),
    [
        ("prot = 1", {}, r"no setting `prot`.*docs/example\.md has all settings: url, port, name"),
        ('contract = "0xCF7ED3AccA5a467e9e704C703E8D87F634fB0Fc"', {}, "contract"),
        ('port = "many"', {}, "port"),
        ("", {"PROOFPOOL_EXAMPLE_PROT": "1"}, "PROOFPOOL_EXAMPLE_PROT"),
        ("", {"PROOFPOOL_EXAMPLE_TABLE__PACE": "1"}, "TABLE__PACE.*settings: rate, inner"),
        ("", {"PROOFPOOL_EXAMPLE_PORT__RATE": "1"}, "PORT__RATE.*no table"),
        ("", {"PROOFPOOL_EXAMPLE_TABLE__INNER__SIDES": "1, 2"}, "isn't JSON.*SIDES"),
        ("", {"PROOFPOOL_EXAMPLE_TABLE": "rate"}, "isn't JSON"),
        ("table.pace = 1", {}, r"no setting `table\.pace`.*all settings: rate, inner"),
        ("= 1", {}, "TOML"),
        ("port = " + "[" * 3000, {}, "TOML"),
    ],
)
def test_a_wrong_key_or_value_is_an_error_that_names_it(
    tmp_path: Path, toml: str, environment: dict[str, str], named: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError, match=named):
        load_config(ExampleConfig, "example", file, environment)


@pytest.mark.parametrize(
    ("wrong", "key", "right"),
    [
        ({"start": -1}, "start", "3"),
        ({"start": "old"}, "start", "anew"),
        ({"port": "many"}, "port", "7"),
        ({"table": {"rate": 0}}, "table.rate", "0.5"),
        ({"table": {"inner": {"rank": 0}}}, "table.inner.rank", "2"),
        ({"table": {"inner": {"sides": [1, "x"]}}}, "table.inner.sides[1]", "[1, 2]"),
        ({"table": {"inner": 1}}, "table.inner", '{"rank": 2}'),
        ({"table": 1}, "table", '{"rate": 2}'),
    ],
)
def test_the_key_is_the_files_and_the_variable_that_is_named_sets_it(
    tmp_path: Path, wrong: dict[str, Any], key: str, right: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("\n".join(f"{name} = {_toml(value)}" for name, value in wrong.items()))
    with pytest.raises(ConfigError) as raised:
        load_config(ExampleConfig, "example", file, {})
    assert raised.value.what == f"the example's configuration is wrong at `{key}`"
    (variable,) = re.findall("PROOFPOOL_[A-Z_]+", raised.value.todo)
    assert load_config(ExampleConfig, "example", file, {variable: right}) != ExampleConfig()


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def test_an_error_of_a_union_has_what_each_of_its_members_wants() -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(ExampleConfig, "example", None, {}, {"start": -1})
    assert "'newest' or 'anew'; or: " in raised.value.why and "greater than or equal to 0 (got -1)" in raised.value.why


def test_a_variable_changes_one_setting_of_a_table_and_leaves_the_files_others(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[table]\nrate = 2\n[table.inner]\nrank = 5\nsides = [1]\n")
    environment = {"PROOFPOOL_EXAMPLE_TABLE__INNER__RANK": "7", "PROOFPOOL_EXAMPLE_TABLE__INNER__SIDES": "[2, 3]"}
    config = load_config(ExampleConfig, "example", file, environment)
    assert config.table == Table(rate=2, inner=Inner(rank=7, sides=(2, 3)))


def test_an_address_is_taken_as_wallets_write_it(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('contract = "0xCf7Ed3AccA5a467e9e704C703E8D87F634fB0Fc9"')
    config = load_config(ExampleConfig, "example", file, {})
    assert config.contract == "0xcf7ed3acca5a467e9e704c703e8d87f634fb0fc9"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_config(ExampleConfig, "example", tmp_path / "none.toml", {})


def test_the_resolved_configuration_is_written(tmp_path: Path) -> None:
    write_resolved(ExampleConfig(port=7), tmp_path / "run")
    assert ExampleConfig.model_validate_json((tmp_path / "run" / "config.json").read_text()).port == 7


def test_a_failed_write_leaves_the_old_content_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_of_a_full_disk_the_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("protocol.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left on device: .*shard") as refused:
        write_atomically(tmp_path / "shard", b"1")
    assert refused.value.filename == str(tmp_path / "shard")
    assert list(tmp_path.iterdir()) == []


def test_a_secret_file_can_be_kept_from_others(tmp_path: Path) -> None:
    write_atomically(tmp_path / "key", b"k", mode=0o600)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
