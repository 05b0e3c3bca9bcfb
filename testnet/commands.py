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
    config: Annotated[Path | None, typer.Option(help="TOML file of the plan; see docs/testnet.md.")] = None,
    seed: Annotated[int | None, typer.Option(help="Keys and salt follow from it; 0 by default.")] = None,
    steps: Annotated[int | None, typer.Option(help="Policy versions to train; 12 by default.")] = None,
    workers: Annotated[int | None, typer.Option(help="Honest workers; 3 by default.")] = None,
    verifiers: Annotated[
        int | None, typer.Option(help="Validators, each with a verifier; slashing takes two, the default.")
    ] = None,
    cheat: Annotated[
        list[str] | None,
        typer.Option(help="KIND or KIND:N, may be repeated; `none` for honest workers only; one wrong-model without."),
    ] = None,
    base_model: Annotated[
        Path | None, typer.Option(help="Hugging Face folder of policy version 0; a tiny model without it.")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(help="The pool's rules as JSON, or as much as is decided; short sums without it.")
    ] = None,
    thresholds: Annotated[
        str | None, typer.Option(help="Limits by name, or a file; those measured on the model without it.")
    ] = None,
    max_async: Annotated[
        int | None, typer.Option(min=0, max=8, help="How many versions behind a rollout may be; 2 by default.")
    ] = None,
    engine: Annotated[EngineName | None, typer.Option(help="What workers generate with; torch by default.")] = None,
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
        "cheats": parse_cheats(cheat) if cheat is not None else None,
        "base_model": base_model,
        "rules": rules,
        "thresholds": thresholds,
        "max_async": max_async,
        "engine": engine,
        "worker_python": worker_python,
        "chain_url": chain,
        "timeout_seconds": timeout_seconds,
    }
    return run_testnet(load_config(Plan, "testnet", config, flags=flags), run_dir, as_json=as_json, keep=keep)
