"""`proofpool trainer data`: look at problem files before a pool is made with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at problem files, and compare them with test sets.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Against = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A test set, parquet or JSON lines; once for each."),
]


@app.callback()
def data() -> None:
    """Look at problem files, and compare them with test sets."""


@app.command()
def stats(
    file: Annotated[Path, typer.Argument(help="Problem file, parquet or JSON lines; see docs/environments.md.")],
    against: Against = None,
    as_json: Json = False,
) -> None:
    """What is in a problem file: its dataset hash, task types, lengths, solve rates, duplicates, overlaps."""
    from trainer.data_stats import data_stats

    found = data_stats(file, against or ())
    print(found.model_dump_json(indent=2) if as_json else "\n".join(found.lines()))
