"""`proofpool worker …`: run, status, verify. Nothing heavy is imported until one of them runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from worker.config import WorkerConfig

app = typer.Typer(no_args_is_help=True, help="Provide rollouts for credits.")

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file; environment and flags override it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def run(
    config: ConfigFile = None,
    data_dir: Annotated[Path | None, typer.Option(help="Leases, outbox and weights of this node.")] = None,
    coordinator_url: Annotated[str | None, typer.Option(help="The pool's coordinator.")] = None,
    chain_url: Annotated[str | None, typer.Option(help="JSON-RPC endpoint of a node of the chain.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, pretty or auto.")] = None,
) -> None:
    """Work: lease tasks, generate rollouts, hand them in. SIGTERM finishes the task at hand first."""
    flags: dict[str, object] = {
        "data_dir": data_dir,
        "coordinator_url": coordinator_url,
        "chain_url": chain_url,
        "log_format": log_format,
    }
    _limit_threads(_settings(config, **flags))
    from worker.process import run_worker

    run_worker(config, flags=flags)


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """What this node is doing and earning, and what keeps it from more; as far as chain and coordinator answer."""
    from worker.status import look, print_status

    found = look(_settings(config))
    if as_json:
        print(found.model_dump_json())
    else:
        print_status(found)
    if found.verdict == "BLOCKED":
        raise typer.Exit(6)


@app.command()
def verify(
    submission_id: Annotated[
        str | None, typer.Argument(help="A submission that was handed in; without it, what lies in the outbox.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Judge own work as a verifier would, with the pool's thresholds. Exit code 3 where it doesn't hold."""
    settings = _settings(config)
    _limit_threads(settings)
    from protocol.checks.report import print_report
    from worker.verify import reports_of

    reports = reports_of(settings, submission_id)
    if as_json:
        json.dump([report.model_dump(mode="json") for report in reports], sys.stdout)
        print()
    else:
        for report in reports:
            print_report(report)
    if not all(report.holds for report in reports):
        raise typer.Exit(3)


def _settings(config: Path | None, **flags: object) -> WorkerConfig:
    from protocol.config import load_config

    return load_config(WorkerConfig, "worker", config, flags=flags)


def _limit_threads(settings: WorkerConfig) -> None:
    """Numeric libraries read this when they are loaded, which comes next."""
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.num_threads))
