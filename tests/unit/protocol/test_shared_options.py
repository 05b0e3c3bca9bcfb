"""Options that commands share come after a command's own, and reach it as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from protocol.shared_options import option, with_shared

Colour = Annotated[str, typer.Option("--colour")]


@dataclass(frozen=True)
class Given:
    colour: str


def paint(
    what: Annotated[str, typer.Argument()], times: Annotated[int, typer.Option("--times")] = 1, *, given: Given
) -> None:
    """Paint."""
    print(what, times, given)


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(with_shared(paint, [option("colour", Colour, "red")], "given", Given))
    return made


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["wall"], "wall 1 Given(colour='red')"),
        (["wall", "--colour", "blue", "--times", "2"], "wall 2 Given(colour='blue')"),
    ],
)
def test_what_is_shared_comes_as_one_value(app: typer.Typer, words: list[str], printed: str) -> None:
    assert CliRunner().invoke(app, words).stdout == printed + "\n"


def test_the_value_itself_is_no_option(app: typer.Typer) -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert "--colour" in text and "--given" not in text and "Paint." in text
    assert CliRunner().invoke(app, ["wall", "--given", "x"]).exit_code == 2
