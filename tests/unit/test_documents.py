"""Each command with `--json` has a committed schema, and none is left of a command that is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from protocol.cli import COMMANDS, load_command
from protocol.documents import ONE_A_LINE, SHAPES, file_of, schema_of, shape_of

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


def commands(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    """Every command below one that does something itself, by its words."""
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from commands(child, f"{words} {name}")
    if not children:
        yield words, command


def with_json() -> set[str]:
    found = [pair for name in COMMANDS for pair in commands(load_command(name), name)]
    return {words for words, command in found if any("--json" in parameter.opts for parameter in command.params)}


def test_each_command_with_json_has_a_schema() -> None:
    assert with_json() == set(SHAPES), "protocol/documents.py names the shape of what each command prints"
    assert set(ONE_A_LINE) < set(SHAPES)


def test_each_schema_is_a_commands() -> None:
    assert {path.name for path in SCHEMAS.iterdir()} == {file_of(command) for command in SHAPES}, "run `make docs`"


@pytest.mark.parametrize("command", SHAPES)
def test_a_committed_schema_is_that_of_the_shape(command: str) -> None:
    committed = json.loads((SCHEMAS / file_of(command)).read_text())
    assert committed == json.loads(json.dumps(schema_of(command))), "run `make docs`"
    assert f"proofpool {command} --json" in committed["$comment"]


@pytest.mark.parametrize("command", SHAPES)
def test_what_is_no_document_fits_no_schema(command: str) -> None:
    with pytest.raises(ValidationError):
        shape_of(command).validate_json('{"schema_version": 99}')


def test_there_is_no_schema_of_nothing() -> None:
    with pytest.raises(KeyError):
        shape_of("worker dance")
