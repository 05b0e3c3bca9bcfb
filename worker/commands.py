"""`proofpool worker …`: run, status, verify, consent. Nothing heavy is imported until one of them runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.config import WorkerConfig
from worker.provider.consent_commands import consent
from worker.setup_commands import bench, doctor, init

if TYPE_CHECKING:
    from protocol.checks.basis import Given
    from protocol.checks.report import FileReport

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
def status(
    config: ConfigFile = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again; with --json, NDJSON.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.5, help="Seconds between two looks.")] = 5.0,
) -> None:
    """What this node is doing and earning, and what keeps it from more; as far as chain and coordinator answer.

    EARNING, IDLE or BLOCKED comes first. Exit code 6 where it is BLOCKED. What doesn't answer is shown as it was last
    known, with its time.
    """
    from worker.status import look
    from worker.status_table import print_status, watch_status

    settings = _settings(config)
    if watch:
        watch_status(lambda: look(settings, file=config), interval, as_json=as_json)
        return
    found = look(settings, file=config)
    if as_json:
        print(found.model_dump_json())
    else:
        print_status(found)
    if found.verdict == "BLOCKED":
        raise typer.Exit(6)


@app.command()
def explain(
    subject: Annotated[str, typer.Argument(metavar="HASH", help="A submission, or the task that it is for.")],
    config: ConfigFile = None,
    judge: Annotated[
        bool | None,
        typer.Option("--judge/--no-judge", help="Judge it here too; by default where tokens or proofs are off."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Why work was refused: reason, measured value and threshold, the first token that is off, and what to do.

    The sentence is the log's, as `proofpool trace` has it; the numbers are the validators'; the token is found by
    judging the file on this machine. Needs no key.
    """
    from protocol.plain import plain

    settings = _settings(config)
    _limit_threads(settings)
    from worker.explain import explain as found_of
    from worker.explain import explainable, explanation_lines

    found = found_of(settings, explainable(subject), judges_here=judge)
    if as_json:
        print(found.model_dump_json())
        return
    for line in explanation_lines(found):
        print(plain(line))


@app.command()
def verify(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE | SUBMISSION_ID]",
            help="A rollout file, or a submission that was handed in; without either, what lies in the outbox.",
        ),
    ] = None,
    coordinator: Annotated[str | None, typer.Option(help="Base URL; needs no configuration, and no chain.")] = None,
    task: Annotated[Path | None, typer.Option(help="JSON of the signed task that the file is for.")] = None,
    rules: Annotated[Path | None, typer.Option(help="JSON of the pool's rules.")] = None,
    pool: Annotated[Path | None, typer.Option(help="JSON of the pool (GET /v1/pool), without a coordinator.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model folder of the task's policy version.")] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Judge own work as a verifier would, with the pool's thresholds. Exit code 3 where it doesn't hold.

    A file's task, rules and weights are fetched: with --config as the chain confirms them, with --coordinator alone on
    its word. With --task, --rules, --pool and --model nobody is asked.
    """
    from protocol.checks.basis import Given

    given = Given(task=task, rules=rules, pool=pool, model=model, coordinator=coordinator)
    for report in (reports := _reports(subject, given, config)):
        if not as_json:
            _print(report)
    if as_json:
        json.dump([report.model_dump(mode="json") for report in reports], sys.stdout)
        print()
    if not all(report.holds for report in reports):
        raise typer.Exit(3)


for command in (init, doctor, bench, consent):
    app.command()(command)


def _reports(subject: str | None, given: Given, config: Path | None) -> list[FileReport]:
    from protocol.canonical import is_hash32
    from protocol.checks.local_check import check_readable, check_subject

    if subject is not None and (given.has_all_files or (given.coordinator and config is None)):
        return [check_subject(subject, given).report]
    if subject is not None and not is_hash32(subject):
        if config is None and not any(name.startswith("PROOFPOOL_WORKER_") for name in os.environ):
            given.check()
        if unreadable := check_readable(Path(subject)):
            return [unreadable.report]
    settings = _settings(config, coordinator_url=given.coordinator)
    _limit_threads(settings)
    from worker.verify import reports_of

    return reports_of(settings, subject, given)


def _print(report: FileReport) -> None:
    from protocol.checks.report_table import print_report

    print_report(report)


def _settings(config: Path | None, **flags: object) -> WorkerConfig:
    from protocol.config import load_config

    return load_config(WorkerConfig, "worker", config, flags=flags)


def _limit_threads(settings: WorkerConfig) -> None:
    """Numeric libraries read this when they are loaded, which comes next."""
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.num_threads))
