"""`proofpool verifier`: judge submissions, see how that stands, check a file by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verifier.calibration.commands import calibrate

if TYPE_CHECKING:
    from protocol.checks.audit_rows import Plan
    from verifier.status import VerifierStatus

app = typer.Typer(help="Check submissions for credits.", no_args_is_help=True)

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file; see docs/verifier.md.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.callback()
def verifier() -> None:
    """Check submissions for credits."""


@app.command()
def run(config: ConfigFile = None) -> None:
    """Judge what is drawn on your seats until stopped; started again, it goes on where it was."""
    from protocol.config import load_config
    from verifier.config import VerifierConfig

    settings = load_config(VerifierConfig, "verifier", config)
    # Numeric libraries read this when they are first imported, which `verifier.process` does.
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.num_threads))
    from verifier.process import run_verifier

    run_verifier(settings)


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """How this verifier stands, as far as it can be told. Exit code 6 where it is BLOCKED."""
    from protocol.config import load_config
    from verifier.config import VerifierConfig
    from verifier.status import read_status

    found = read_status(load_config(VerifierConfig, "verifier", config))
    print(found.model_dump_json() if as_json else _told(found))
    if found.is_blocked:
        raise typer.Exit(6)


def _told(found: VerifierStatus) -> str:
    given = ", ".join(f"{number} {outcome}" for outcome, number in found.verdicts.items()) or "none"
    lines = [
        found.headline,
        f"verdicts: {given}; {found.num_unrevealed} not revealed yet",
        f"log checked: {found.num_epochs_checked} epochs",
        "re-audits: " + ", ".join(f"{number} {what}" for what, number in found.reaudits.items()),
        f"work stamps that others dispute: {found.num_disputed_stamps}",
    ]
    return "\n".join([*lines, f"problem: {found.problem}"] if found.problem else lines)


@app.command()
def overlap(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Which nodes have handed in the same completions, among what this verifier has read. Nobody is refused."""
    from protocol.config import load_config
    from verifier.completions import read_overlap
    from verifier.config import VerifierConfig

    report = read_overlap(load_config(VerifierConfig, "verifier", config).data_dir)
    if as_json:
        print(report.model_dump_json())
        return
    print(f"{report.num_completions} completions of at least 16 tokens, of {report.num_nodes} nodes")
    for one in report.overlaps:
        print(f"{one.node} shares {one.num_shared} of {one.num_completions} ({one.share:.1%}) with {one.other_node}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The rollout file (parquet).")],
    coordinator: Annotated[str | None, typer.Option(help="Base URL: it is asked for what isn't given.")] = None,
    task: Annotated[Path | None, typer.Option(help="JSON of the signed task that it is for.")] = None,
    rules: Annotated[Path | None, typer.Option(help="JSON of the pool's rules.")] = None,
    pool: Annotated[Path | None, typer.Option(help="JSON of the pool (GET /v1/pool): whose keys sign.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model folder of the task's policy version.")] = None,
    beacon: Annotated[str | None, typer.Option(help="Beacon of a draw: audit the rollouts that its seats do.")] = None,
    submission_id: Annotated[
        str | None, typer.Option(help="The drawn submission's id, with --beacon; with --coordinator, what to compare.")
    ] = None,
    round_number: Annotated[int, typer.Option("--round", help="The draw's round, with --beacon.")] = 0,
    as_json: AsJson = False,
) -> int:
    """Judge a file on this machine as a drawn verifier would. Exit code 3 where it isn't acceptable.

    The model looks at every rollout; with --beacon and --submission-id, at those that the rules' audit policy draws.
    """
    from protocol.checks.basis import Given
    from protocol.checks.local_check import check_file
    from protocol.checks.report_table import print_report

    given = Given(task=task, rules=rules, pool=pool, model=model, coordinator=coordinator)
    given.check()
    plan = _plan(beacon, submission_id, round_number, is_asked=coordinator is not None)
    report = check_file(file, given, plan, submission_id).report
    if as_json:
        print(report.model_dump_json())
    else:
        print_report(report)
    return 0 if report.holds else 3


def _plan(beacon: str | None, submission_id: str | None, round_number: int, *, is_asked: bool) -> Plan:
    """With a coordinator to ask, a submission alone is there to be compared with."""
    from protocol.canonical import is_hash32
    from protocol.checks.audit_rows import drawn_by, everything
    from protocol.errors import UsageError

    is_alone = submission_id is None or (is_asked and is_hash32(submission_id))
    if beacon is None and is_alone:
        return everything
    if beacon is None or submission_id is None or not is_hash32(beacon) or not is_hash32(submission_id):
        raise UsageError(
            "a draw isn't named", f"beacon {beacon}, submission {submission_id}", "give both, 0x and 64 digits"
        )
    return drawn_by(beacon, submission_id, round_number)


app.command()(calibrate)
