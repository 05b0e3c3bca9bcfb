"""`proofpool trainer`: run the trainer of a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Take optimizer steps and broadcast weights.", no_args_is_help=True)


@app.callback()
def trainer() -> None:
    """Take optimizer steps and broadcast weights."""


@app.command()
def run(
    config: Annotated[Path | None, typer.Option(help="TOML file; see docs/trainer.md.")] = None,
    num_steps: Annotated[int | None, typer.Option(help="Stop after this policy version.")] = None,
) -> None:
    """Train until stopped; started again, it goes on where it was."""
    from trainer.process import run_trainer

    run_trainer(config, num_steps)
