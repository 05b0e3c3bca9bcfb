"""`proofpool worker consent`: the node agrees to work for a provider, signed where its key lies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protocol.signing import Signer
    from worker.provider.config import ProviderConfig

MAX_HOURS = 24 * 365


def consent(
    provider: Annotated[str, typer.Option("--provider", metavar="ADDRESS", help="Whom the node is to work for.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where to put the file; else it is printed.")] = None,
    hours: Annotated[int, typer.Option("--hours", min=1, max=MAX_HOURS, help="How long it is good for.")] = 72,
    config: Annotated[Path | None, typer.Option("--config", help="The worker's TOML file: its chain and key.")] = None,
    chain: Annotated[
        str | None, typer.Option("--chain", envvar="PROOFPOOL_CHAIN_URL", help="JSON-RPC of a node.")
    ] = None,
    deployment: Annotated[
        Path | None, typer.Option("--deployment", envvar="PROOFPOOL_DEPLOYMENT", help="File of the contracts.")
    ] = None,
    ledger: Annotated[str | None, typer.Option("--ledger", help="The pool's Ledger, where there is no file.")] = None,
    coordinator: Annotated[str | None, typer.Option("--coordinator", help="Or its coordinator's URL.")] = None,
    keystore: Annotated[
        Path | None, typer.Option("--keystore", help="The node's key: a file, or a name of `proofpool key list`.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="Opens it; else PROOFPOOL_PASSWORD, or it is asked.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout; nothing is asked.")] = False,
) -> None:
    """Sign, with the node's key, that it works for a provider: the file that `proofpool provider register` takes.

    It isn't secret, and of use to that provider only, once. The provider's key isn't needed here.
    """
    from contextlib import closing

    from protocol.address import parse_address
    from protocol.chain.deployment import connect
    from protocol.clock import SystemClock
    from protocol.events import utc
    from worker.provider.consent import check_free, make_consent, write_consent

    owner = parse_address(provider, "--provider")
    if out is not None:
        check_free(out)
    given: dict[str, object] = {
        "chain_url": chain,
        "coordinator_url": coordinator,
        "deployment": deployment,
        "ledger": ledger,
    }
    where = _settings(config, given | {"keystore": keystore, "password_file": password_file})
    contracts = connect(where.chain_url, SystemClock(), deployment=where.deployment, ledger=where.ledger)
    with closing(contracts.client.rpc):
        node = _node_key(where, contracts.client.chain_id, may_ask=not as_json)
        made = make_consent(contracts, node, owner, hours * 3600)
    if out is not None:
        write_consent(out, made)
    if as_json or out is None:
        typer.echo(made.model_dump_json())
    else:
        typer.echo(f"{made.node} agrees to work for {owner}: {out}")
        typer.echo(f"good until {utc(made.authorization.message.deadline)}, for one registration", err=True)
        typer.echo(f"on the provider's machine: proofpool provider register {out.name} …", err=True)


def _settings(config: Path | None, flags: dict[str, object]) -> ProviderConfig:
    """The worker's configuration where one is named, else what the flags say."""
    from protocol.config import load_config
    from worker.config import WorkerConfig
    from worker.provider.config import settings

    if config is None:
        return settings(None, **flags)
    worker = load_config(WorkerConfig, "worker", config, flags=flags)
    shared = ("chain_url", "coordinator_url", "pool_id", "ledger", "deployment", "keystore", "password_file")
    return settings(None, **{name: getattr(worker, name) for name in shared})


def _node_key(config: ProviderConfig, chain_id: int, *, may_ask: bool) -> Signer:
    from protocol.keyring import find_key
    from protocol.keystore import check_private, load_signer, open_keystore
    from protocol.passwords import get_password

    if config.keystore is None:
        return load_signer(chain_id, None)
    keystore = find_key(config.keystore)
    check_private(keystore)
    return open_keystore(keystore, get_password(str(keystore), config.password_file, may_ask=may_ask))
