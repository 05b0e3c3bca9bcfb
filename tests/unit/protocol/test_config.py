"""Configuration: order of sources, unknown keys, and files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.config import Address, RoleConfig, load_config, write_resolved
from protocol.errors import ConfigError
from protocol.files import write_atomically


class ExampleConfig(RoleConfig):
    url: str = "http://default"
    port: int = 1
    name: str = "default"
    contract: Address | None = None


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


def test_a_secret_file_can_be_kept_from_others(tmp_path: Path) -> None:
    write_atomically(tmp_path / "key", b"k", mode=0o600)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
