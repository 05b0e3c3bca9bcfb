"""`proofpool coordinator …`: serve, bond, unbond, migrate, openapi. Nothing heavy is imported until one runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coordinator.bond import BondStatus

app = typer.Typer(no_args_is_help=True, help="Lease tasks, take submissions, keep the log.")

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file; environment and flags override it.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.command()
def serve(config: ConfigFile = None) -> None:
    """Serve a pool until stopped; the database is brought to the current schema first."""
    from coordinator.process import run_coordinator

    run_coordinator(config)


@app.command()
def bond(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Bond what the pool asks of its coordinator, from the coordinator's own credits. Again is no change."""
    from coordinator.bond import run_bond

    _tell(run_bond(config), as_json)


@app.command()
def unbond(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Take the bond back, after the key was replaced and its unbonding time, or when the pool is over."""
    from coordinator.bond import run_unbond

    _tell(run_unbond(config), as_json)


@app.command("log-key")
def log_key(
    out: Annotated[Path, typer.Option("--out", help="The keystore to write.")],
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="Its password on the first line; else PROOFPOOL_PASSWORD.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the key that signs a log's checkpoints; prints the public key that the pool is created with."""
    from coordinator.checkpoints import LogKeyMade, create_log_key
    from protocol.keystore import read_password

    public_key = create_log_key(out, read_password(password_file))
    made = LogKeyMade(checkpoint_key=public_key, keystore=str(out))
    print(made.model_dump_json() if as_json else public_key)


@app.command()
def migrate(config: ConfigFile = None) -> None:
    """Bring the database to the current schema."""
    from coordinator.config import CoordinatorConfig
    from coordinator.db.engine import open_engine, usable_database
    from coordinator.db.migrate import migrate as apply_steps
    from protocol.config import load_config
    from protocol.lock import FolderLock

    settings = load_config(CoordinatorConfig, "coordinator", config)
    with FolderLock(settings.data_dir, "coordinator"), usable_database():
        apply_steps(open_engine(settings.resolved_database_url))


@app.command()
def openapi() -> None:
    """Print the OpenAPI document of the HTTP API (docs/openapi.json)."""
    import json

    from coordinator.api.app import create_app

    print(json.dumps(create_app(None).openapi(), indent=2, sort_keys=True))


def _tell(done: BondStatus, as_json: bool) -> None:
    if as_json:
        print(done.model_dump_json())
        return
    print(f"bonded {done.bonded_wei} of {done.wanted_wei} wei in pool {done.pool_id}, {done.added_wei:+} now")
