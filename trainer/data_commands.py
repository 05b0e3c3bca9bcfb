"""`proofpool trainer data`: make problem files of public data sets, and look at them before a pool is made with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make problem files, look at them, and compare them with test sets.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Against = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A test set, parquet or JSON lines; once for each."),
]


@app.callback()
def data() -> None:
    """Make problem files, look at them, and compare them with test sets."""


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


@app.command("import")
def import_command(
    sources: Annotated[list[Path], typer.Argument(help="Data sets, parquet or JSON lines; see docs/environments.md.")],
    out: Annotated[Path, typer.Option(help="The problem file: a name that ends in .jsonl or .parquet.")],
    against: Against = None,
    prompt_column: Annotated[str | None, typer.Option(help="Where the question is, in other formats.")] = None,
    answer_column: Annotated[str | None, typer.Option(help="Where its answer is, in other formats.")] = None,
    task_type: Annotated[str, typer.Option(help="Of rows that don't say.")] = "math",
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep repeated prompts.")] = False,
    as_json: Json = False,
) -> None:
    """Make a problem file of public data sets, without duplicates and what the test sets have."""
    from trainer.data_columns import Columns
    from trainer.data_import import import_problems

    columns = Columns(prompt_column, answer_column, task_type)
    report = import_problems(sources, out, columns, against or (), keep_duplicates)
    print(report.model_dump_json(indent=2) if as_json else "\n".join(report.lines()))
