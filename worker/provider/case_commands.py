"""Commands of `proofpool provider` that stand up for a node's work: against a coordinator, and before the Court."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from worker.provider.report import ProviderReport

ConfigFile = Annotated[Path | None, typer.Option("--config", help="The worker's TOML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show transactions, cost and effect; send nothing. Needs no password.")
]


def force_intake(
    submission_id: Annotated[str, typer.Argument(metavar="HASH", help="A submission that isn't taken in.")],
    config: ConfigFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Announce a submission on chain, with the node's key: the log must receive it, or say why not. Takes gas only."""
    from protocol.config import load_config
    from worker.config import WorkerConfig
    from worker.force import force_intake as force

    settings, checked = load_config(WorkerConfig, "worker", config), _checked(submission_id)
    if dry_run:
        from worker.provider.case_plans import preview_force_intake

        return _show(preview_force_intake(settings, checked), as_json)
    forced = force(settings, checked)
    if as_json:
        print(forced.model_dump_json())
        return None
    when = "now" if forced.transaction_hash else "before"
    print(f"forced in {when}: the log must answer by the end of epoch {forced.include_by_epoch}")
    print("leave the worker running: it hands the file in")
    print(f"if the log doesn't answer: proofpool audit challenge-inclusion {forced.submission_id} --pool ID …")
    return None


def appeal(
    submission_id: Annotated[str, typer.Argument(metavar="HASH", help="A submission that is accused.")],
    config: ConfigFile = None,
    keystore: Annotated[
        Path | None, typer.Option("--keystore", help="The provider's key, which pays; else the node's.")
    ] = None,
    password_file: Annotated[Path | None, typer.Option("--password-file", help="That keystore's password.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Call a jury over an accusation, before the appeal period ends. Takes the pool's appeal bond.

    The bond comes back where the jury overturns the accusation, and where it finds nothing.
    """
    from protocol.amount import format_amount
    from protocol.config import load_config
    from worker.appeal import appeal as object_to
    from worker.config import WorkerConfig

    settings, checked = load_config(WorkerConfig, "worker", config), _checked(submission_id)
    if dry_run:
        from worker.provider.case_plans import preview_appeal

        return _show(preview_appeal(settings, checked, keystore), as_json)
    found = object_to(settings, checked, keystore, password_file)
    if as_json:
        print(found.model_dump_json())
        return None
    when = "appealed" if found.sent else "appealed before"
    bond = format_amount(found.bond_wei)
    print(f"{when}: a bond of {bond} credits by {found.appellant} (until chain time {found.deadline})")
    print(f"a jury decides; without one by chain time {found.jury_deadline} the case lapses, and the bond goes back")
    return None


def _show(report: ProviderReport, as_json: bool) -> None:
    from worker.provider.printing import lines_of

    print(report.model_dump_json() if as_json else "\n".join(lines_of(report)))


def _checked(submission_id: str) -> str:
    from protocol.canonical import is_hash32
    from protocol.errors import UsageError

    if not is_hash32(submission_id.lower()):
        why = f"{submission_id}: an id is 0x and 64 hexadecimal digits"
        raise UsageError("that is no submission id", why, "copy one from `proofpool worker status`")
    return submission_id.lower()
