"""Configuration of a process: defaults < TOML < environment < flags; unknown keys are errors.

In: a pydantic model class, a TOML file, `PROOFPOOL_<ROLE>_<FIELD>` variables (`…_<TABLE>__<FIELD>` in a table), flags.
Out: the frozen model, and `config.json` in the run folder. Secrets stay in keystores and never come in here.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from protocol.address import small
from protocol.errors import ConfigError, UsageError
from protocol.files import write_atomically
from protocol.setting_names import from_environment, key_of, merged, names_of, table_at, variable_of
from protocol.wire import Address as WireAddress


class RoleConfig(BaseModel):
    """The base of every role's configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _lower_case(value: object) -> object:
    try:
        return small(value, "the address") if isinstance(value, str) else value
    except UsageError as error:
        raise ValueError(f"{error.what}: {error.why}; {error.todo}") from error


Address = Annotated[WireAddress, BeforeValidator(_lower_case)]
"""An address as people copy it: wallets, explorers and our own banner write some of its digits in capitals."""

C = TypeVar("C", bound=RoleConfig)


def load_config(
    shape: type[C],
    role: str,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
    page: str | None = None,
) -> C:
    """The configuration of `role`, explained in `page` of docs. Raises ConfigError with key, value and origin."""
    page = page or f"docs/{role}.md"
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_toml(file)
    values = merged(values, from_environment(shape, role, environment))
    values |= {key: value for key, value in (flags or {}).items() if value is not None}
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        raise _wrong(shape, role, error.errors(), file, page) from error


def _wrong(
    shape: type[RoleConfig], role: str, errors: Sequence[ErrorDetails], file: Path | None, page: str
) -> ConfigError:
    """Of the first setting that is wrong, with what each member of its union says."""
    first = errors[0]
    names = names_of(shape, first["loc"])
    key = key_of(names)
    if first["type"] == "missing":
        return ConfigError(
            f"the {role}'s configuration lacks `{key}`",
            f"it isn't in {file}" if file else "no --config was given",
            f"set it in {file or 'a TOML file and name that with --config'}; {page} has all settings",
        )
    if first["type"] == "extra_forbidden":
        return ConfigError(
            f"the {role}'s configuration has no setting `{key}`",
            f"{file or 'a flag'}: {key} = {first['input']!r}",
            f"take it out; {page} has all settings: {', '.join(table_at(shape, names).model_fields)}",
        )
    said = dict.fromkeys(one["msg"] for one in errors if names_of(shape, one["loc"]) == names)
    return ConfigError(
        f"the {role}'s configuration is wrong" + (f" at `{key}`" if key else ""),
        f"{'; or: '.join(said)} (got {first['input']!r})",
        f"mend {file or 'the flags'}" + (f" or {variable_of(role, names)}" if key else ""),
    )


def write_resolved(config: RoleConfig, folder: Path) -> None:
    """Put the configuration as it was resolved into the run folder."""
    write_atomically(folder / "config.json", config.model_dump_json(indent=2).encode() + b"\n")


def _from_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            "there is no such configuration file", str(file), "give --config an existing TOML file"
        ) from error
    except OSError as error:
        raise ConfigError(
            "a configuration file can't be read", f"{file}: {error.strerror}", "check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("a configuration file isn't TOML", f"{file}: {error}", "mend it at that line") from error
