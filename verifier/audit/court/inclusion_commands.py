"""`proofpool audit challenge-inclusion`: hold a coordinator to what it promised."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
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


def challenge_inclusion(
    promise: Annotated[
        str,
        typer.Argument(
            metavar="RECEIPT_FILE|HASH",
            help="A worker's TASK.answer.json or a proof bundle; or the id of a submission that was forced in.",
        ),
    ],
    chain: ChainOption,
    ledger: LedgerOption,
    pool: Annotated[int | None, typer.Option("--pool", help="The pool's id, with HASH.")] = None,
    answerable: Annotated[
        str | None, typer.Option("--answerable", help="Who was coordinator then, with HASH; else who is now.")
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            "--coordinator",
            envvar="PROOFPOOL_COORDINATOR_URL",
            help="Ask it first: where its log shows the leaf, nothing is sent. Exit code 3.",
        ),
    ] = None,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Demand that the log has a submission as promised. Takes a bond, which a broken promise gives back.

    A kept promise costs it: name the --coordinator to have its log looked at first. Run it again after the deadline:
    where nobody showed the leaf, that makes the coordinator pay.
    """
    from protocol.address import parse_address
    from protocol.canonical import is_hash32
    from protocol.client import CoordinatorClient
    from protocol.errors import UsageError
    from verifier.audit.court.inclusion import Promised, advance, forced_promise, receipt_promise
    from verifier.audit.document import read_document

    if is_forced := is_hash32(promise.lower()):
        if pool is None:
            raise UsageError("a forced submission is one of a pool", "HASH without --pool", "give --pool ID")
        answerable = None if answerable is None else parse_address(answerable, "--answerable")
    todo = "give DATA/outbox/TASK.answer.json of the worker, or a file of `proofpool audit bundle`"
    what = "a submission with its receipt"
    promised = None if is_forced else read_document(Path(promise), Promised, what, todo)
    with sending(chain, ledger, keystore, password_file) as sender:
        found = (
            forced_promise(sender.contracts, pool or 0, promise.lower(), answerable)
            if promised is None
            else receipt_promise(sender.contracts, promised)
        )
        with nullcontext() if coordinator is None else closing(CoordinatorClient(coordinator)) as client:
            report = advance(sender.contracts, sender.lane, found, client)
    tell(as_json, report.model_dump(mode="json"))
