"""`proofpool shardcast token`: let somebody take weights from relays that want a token."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SECONDS_A_DAY = 86_400


def token(
    holder: Annotated[str, typer.Option(help="Address of whom it is for, such as a node's.")],
    keystore: Annotated[
        Path | None, typer.Option(help="The key that signs: one that relays name as --token-signer.")
    ] = None,
    password_file: Annotated[Path | None, typer.Option(help="The keystore's password.")] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is good for.")] = 30,
    coordinator: Annotated[
        str, typer.Option("--coordinator", envvar="PROOFPOOL_COORDINATOR_URL", help="Whose pool's weights.")
    ] = "http://127.0.0.1:8700",
) -> None:
    """Print a download token: what `PROOFPOOL_SHARDCAST_TOKEN_FILE` names a file with.

    Whoever sees it can use it until it ends; it is good for bandwidth and for nothing else.
    """
    from contextlib import closing

    from protocol.address import parse_address
    from protocol.client import CoordinatorClient
    from protocol.clock import SystemClock
    from protocol.keystore import load_signer
    from protocol.shardcast.releases import CoordinatorReleases
    from protocol.shardcast.token import make_token
    from protocol.wire import DownloadToken

    address = parse_address(holder, "--holder")
    with closing(CoordinatorClient(coordinator)) as client:
        pool_id, domain = CoordinatorReleases(client).ground()
    expiry = int(SystemClock().now()) + days * SECONDS_A_DAY
    signer = load_signer(domain.chain_id, keystore, password_file)
    typer.echo(make_token(signer, DownloadToken(pool_id=pool_id, holder=address, expiry=expiry), domain))
