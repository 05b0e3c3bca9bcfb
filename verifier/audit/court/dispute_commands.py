"""`proofpool audit dispute-earnings`: bring an earnings root that the log doesn't bear out before a jury."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from verifier.audit.court.sender import (
    ChainOption,
    JsonOption,
    KeystoreOption,
    LedgerOption,
    PasswordOption,
    sending,
    tell,
)


def dispute_earnings(
    epoch: Annotated[int, typer.Argument(min=0, help="Of the root: up to which epoch it says what was earned.")],
    chain: ChainOption,
    ledger: LedgerOption,
    coordinator: Annotated[
        str, typer.Option("--coordinator", envvar="PROOFPOOL_COORDINATOR_URL", help="Base URL.")
    ] = "http://127.0.0.1:8700",
    pool: Annotated[int | None, typer.Option("--pool", help="The pool's id; else the coordinator's.")] = None,
    without_check: Annotated[
        bool, typer.Option("--without-check", help="Recompute nothing here: that was done elsewhere.")
    ] = False,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a false earnings root before a jury. Takes the pool's challenge bond, which a false dispute loses.

    By default the earnings are recomputed from the coordinator's log first, and nothing is sent where the root is
    true. The seats that signed it are named in the dispute. Exit code 3 where nothing is wrong with it.
    """
    from protocol.client import CoordinatorClient
    from verifier.audit.court.dispute import Disputer

    with sending(chain, ledger, keystore, password_file) as sender, closing(CoordinatorClient(coordinator)) as client:
        pool_id = client.pool().pool_id if pool is None else pool
        log = None if without_check else client
        report = Disputer(sender.contracts, sender.lane, pool_id, log).dispute(epoch)
    tell(as_json, report.model_dump(mode="json"))
