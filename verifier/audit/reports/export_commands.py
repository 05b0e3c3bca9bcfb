"""`proofpool audit export`: the checked history as CSV, JSON lines or parquet."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from verifier.audit.options import (
    DEFAULT_URL,
    ChainOption,
    CoordinatorOption,
    JsonOption,
    LedgerOption,
    address,
    hash32,
)
from verifier.audit.reports.row_files import Format


def export(
    out: Annotated[Path, typer.Option("--out", help="The file; there when all was checked, or not at all.")],
    row_format: Annotated[Format, typer.Option("--format", help="Of the file; the rows are the same.")],
    coordinator: CoordinatorOption = DEFAULT_URL,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    event_type: Annotated[
        list[str] | None, typer.Option("--type", help="Leaves of this type, or beginning so: chain.*; again for more.")
    ] = None,
    subject: Annotated[
        list[str] | None, typer.Option("--subject", metavar="HASH", help="Leaves about this; again for more.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="ADDRESS", help="Leaves that name this node.")] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="ADDRESS", help="Leaves that name this provider.")
    ] = None,
    since_epoch: Annotated[int | None, typer.Option("--since-epoch", min=0, help="From this epoch on.")] = None,
    until_epoch: Annotated[int | None, typer.Option("--until-epoch", min=0, help="Up to this epoch, with it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the history, or what matches of it, in the log's order: a row a leaf, every column documented.

    Every leaf is read, hashed and held against the chain's heads, or without --chain against the coordinator's own.
    Exit code 3, and no file, where the log isn't the one under them.
    """
    from protocol.client import CoordinatorClient
    from verifier.audit.log.checked_log import checked_log
    from verifier.audit.reports.export import Wanted, check_types
    from verifier.audit.reports.export import export as write

    _check_call(out, since_epoch, until_epoch)
    check_types(event_type or ())
    wanted = Wanted(
        types=tuple(event_type or ()),
        subjects=tuple(hash32(one) for one in subject or ()),
        node=None if node is None else address(node),
        provider=None if provider is None else address(provider),
        since_epoch=since_epoch,
        until_epoch=until_epoch,
    )
    with closing(CoordinatorClient(coordinator)) as client, checked_log(client, chain, ledger) as log:
        summary = write(log, wanted, out, row_format)
    if not summary.anchored:
        print(f"not anchored: {summary.anchor}", file=sys.stderr)
    if as_json:
        typer.echo(summary.model_dump_json(indent=2))
        return
    head = (
        "no epoch is closed yet" if summary.head is None else f"head of epoch {summary.head.epoch} {summary.head.root}"
    )
    typer.echo(f"{out}: {summary.num_rows} rows of {summary.num_leaves} leaves; {summary.anchor}; {head}")
    typer.echo(f"sha256 {summary.sha256.removeprefix('0x')}")


def _check_call(out: Path, since_epoch: int | None, until_epoch: int | None) -> None:
    """Raises UsageError before a log of hours is read for what can't be written, or for no row at all."""
    from protocol.errors import UsageError

    if out.is_dir():
        raise UsageError("an export is a file", f"{out} is a folder", "give --out the file's name in it")
    if since_epoch is not None and until_epoch is not None and since_epoch > until_epoch:
        why = f"--since-epoch {since_epoch} is after --until-epoch {until_epoch}"
        raise UsageError("no epoch is wanted", why, "both are inclusive: the first, then the last")
