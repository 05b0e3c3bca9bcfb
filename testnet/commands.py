"""`proofpool testnet`: the whole system on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.engines.names import EngineName

app = typer.Typer(help="Run all of proofpool on this machine.", no_args_is_help=True)


@app.callback()
def testnet() -> None:
    """Run all of proofpool on this machine."""


@app.command()
def up(
    seed: Annotated[int, typer.Option(help="Keys and salt follow from it.")] = 0,
    steps: Annotated[int, typer.Option(help="Policy versions to train.")] = 12,
    workers: Annotated[int, typer.Option(help="Honest workers.")] = 3,
    verifiers: Annotated[int, typer.Option(help="Validators, each with a verifier; slashing takes two.")] = 2,
    cheat: Annotated[
        list[str] | None, typer.Option(help="KIND or KIND:N, may be repeated; `none` for honest workers only.")
    ] = None,
    max_async: Annotated[
        int | None, typer.Option(min=0, max=8, help="How many versions behind a rollout may be; 2 by default.")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="What workers generate with.")] = "torch",
    worker_python: Annotated[
        Path | None, typer.Option(help="The Python of workers, such as .venv-vllm/bin/python for --engine vllm.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Where the run is kept; a new folder in runs/ without it.")
    ] = None,
    chain: Annotated[str | None, typer.Option(help="A node to use instead of starting one.")] = None,
    timeout_seconds: Annotated[
        float | None,
        typer.Option(min=1, help="How long a run may take, 900 by default; with --keep, how long without progress."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
    keep: Annotated[bool, typer.Option(help="Leave everything running until interrupted.")] = False,
) -> int:
    """Start chain, coordinator, workers, cheats, verifiers and trainer; follow them to the end; check everything."""
    from protocol.config import load_config
    from testnet.plan import Plan, parse_cheats
    from testnet.up import run_testnet

    flags = {
        "seed": seed,
        "num_steps": steps,
        "num_workers": workers,
        "num_verifiers": verifiers,
        "cheats": parse_cheats(cheat if cheat is not None else ["wrong-model"]),
        "max_async": max_async,
        "engine": engine,
        "worker_python": worker_python,
        "chain_url": chain,
        "timeout_seconds": timeout_seconds,
    }
    return run_testnet(load_config(Plan, "testnet", flags=flags), run_dir, as_json=as_json, keep=keep)
