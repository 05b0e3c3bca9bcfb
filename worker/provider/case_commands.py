"""Commands of `proofpool provider` that stand up for a node's work: against a coordinator, and before the Court."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path | None, typer.Option("--config", help="The worker's TOML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def force_intake(
    submission_id: Annotated[str, typer.Argument(metavar="HASH", help="A submission that isn't taken in.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Announce a submission on chain, with the node's key: the log must receive it, or say why not. Takes gas only."""
    from protocol.config import load_config
    from worker.config import WorkerConfig
    from worker.force import force_intake as force

    forced = force(load_config(WorkerConfig, "worker", config), _checked(submission_id))
    if as_json:
        print(forced.model_dump_json())
        return
    when = "now" if forced.transaction_hash else "before"
    print(f"forced in {when}: the log must answer by the end of epoch {forced.include_by_epoch}")
    print("leave the worker running: it hands the file in")
    print(f"if the log doesn't answer: proofpool audit challenge-inclusion {forced.submission_id} --pool ID …")


def appeal(
    submission_id: Annotated[str, typer.Argument(metavar="HASH", help="A submission that is accused.")],
    config: ConfigFile = None,
    keystore: Annotated[
        Path | None, typer.Option("--keystore", help="The provider's key, which pays; else the node's.")
    ] = None,
    password_file: Annotated[Path | None, typer.Option("--password-file", help="That keystore's password.")] = None,
    as_json: AsJson = False,
) -> None:
    """Call a jury over an accusation, before the appeal period ends. Takes the pool's appeal bond.

    The bond comes back where the jury overturns the accusation, and where it finds nothing.
    """
    from protocol.config import load_config
    from worker.appeal import appeal as object_to
    from worker.config import WorkerConfig

    found = object_to(load_config(WorkerConfig, "worker", config), _checked(submission_id), keystore, password_file)
    if as_json:
        print(found.model_dump_json())
        return
    when = "appealed" if found.sent else "appealed before"
    print(f"{when}: a bond of {found.bond_wei} wei by {found.appellant} (until chain time {found.deadline})")
    print(f"a jury decides; without one by chain time {found.jury_deadline} the case lapses, and the bond goes back")


def _checked(submission_id: str) -> str:
    from protocol.canonical import is_hash32
    from protocol.errors import UsageError

    if not is_hash32(submission_id.lower()):
        why = f"{submission_id}: an id is 0x and 64 hexadecimal digits"
        raise UsageError("that is no submission id", why, "copy one from `proofpool worker status`")
    return submission_id.lower()
