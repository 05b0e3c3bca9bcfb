"""A setting's names: its key in TOML, its variable, and the place where pydantic found it wrong.

    recipe.learning_rate  =  PROOFPOOL_TRAINER_RECIPE__LEARNING_RATE  =  ("recipe", "learning_rate")

In: a configuration's class, variables or pydantic's errors. Out: nested values, names. A table's settings follow two
underscores; what is no single value (a list, a whole table) is JSON in a variable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from protocol.errors import ConfigError

SEPARATOR = "__"
COMPOUND = (tuple, list, dict, set, frozenset)


def key_of(names: Sequence[str | int]) -> str:
    """As TOML has it.

    >>> key_of(("recipe", "betas", 1))
    'recipe.betas[1]'
    """
    return "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names).removeprefix(".")


def variable_of(role: str, names: Sequence[str | int]) -> str:
    """The variable that sets it, or the list that it stands in.

    >>> variable_of("trainer", ("recipe", "betas", 1))
    'PROOFPOOL_TRAINER_RECIPE__BETAS'
    """
    words: list[str] = []
    for name in names:
        if isinstance(name, int):
            break
        words.append(name.upper())
    return f"PROOFPOOL_{role.upper()}_{SEPARATOR.join(words)}"


def names_of(shape: type[BaseModel], place: Sequence[str | int]) -> tuple[str | int, ...]:
    """Of the setting at pydantic's `place`, which also names the members of a union that were tried."""
    table: type[BaseModel] | None = shape
    found: list[str | int] = []
    for part in place:
        if isinstance(part, int):
            found.append(part)
        elif table is not None:
            found.append(part)
            table = table_of(table.model_fields[part].annotation) if part in table.model_fields else None
    return tuple(found)


def table_at(shape: type[BaseModel], names: Sequence[str | int]) -> type[BaseModel]:
    """The innermost table that holds the setting of these names."""
    table = shape
    for name in names[:-1]:
        if isinstance(name, str) and name in table.model_fields:
            table = table_of(table.model_fields[name].annotation) or table
    return table


def table_of(annotation: Any) -> type[BaseModel] | None:
    """The table that a setting of this type is, or is a list of; None for plain values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for one in get_args(annotation) if (table := table_of(one)) is not None), None)


def from_environment(shape: type[BaseModel], role: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What variables set, tables nested. Raises ConfigError for one that names no setting, or isn't JSON."""
    prefix = variable_of(role, ())
    found: dict[str, Any] = {}
    for variable in sorted(name for name in environment if name.startswith(prefix)):
        names = variable.removeprefix(prefix).lower().split(SEPARATOR)
        value = _read(variable, _annotation(shape, names, variable), environment[variable])
        for name in reversed(names):
            value = {name: value}
        found = merged(found, value)
    return found


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on `under`, tables setting by setting."""

    def one(name: str) -> Any:
        low, high = under.get(name), over.get(name)
        if isinstance(low, Mapping) and isinstance(high, Mapping):
            return merged(low, high)
        return high if name in over else low

    return {name: one(name) for name in [*under, *(name for name in over if name not in under)]}


def _annotation(shape: type[BaseModel], names: Sequence[str], variable: str) -> Any:
    table: type[BaseModel] | None = shape
    annotation: Any = None
    for name in names:
        if table is None or name not in table.model_fields:
            settings = "it is no table" if table is None else f"settings: {', '.join(table.model_fields)}"
            raise ConfigError("an environment variable names no setting", variable, settings)
        annotation = table.model_fields[name].annotation
        table = None if any(_origins(annotation)) else table_of(annotation)
    return annotation


def _read(variable: str, annotation: Any, text: str) -> Any:
    if not any(_origins(annotation)) and table_of(annotation) is None:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        todo = 'a list or a table is written in JSON there, such as ["a", "b"]'
        raise ConfigError("an environment variable isn't JSON", f"{variable}={text!r:.100}", todo) from error


def _origins(annotation: Any) -> Iterator[bool]:
    """Whether it, or a member of the union that it is, is a list."""
    origin = get_origin(annotation) or annotation
    if origin in COMPOUND:
        yield True
        return
    for one in get_args(annotation):
        yield from _origins(one)
