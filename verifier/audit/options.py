"""Options and arguments that the auditor's commands share.

In: words of a command line. Out: what they name, in small letters, as hashes and addresses are compared here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.shared_options import option, with_shared

DEFAULT_URL = "http://127.0.0.1:8700"

CoordinatorOption = Annotated[str, typer.Option("--coordinator", envvar="PROOFPOOL_COORDINATOR_URL", help="Base URL.")]
ChainOption = Annotated[str | None, typer.Option("--chain", envvar="PROOFPOOL_CHAIN_URL", help="JSON-RPC of a node.")]
SubmissionId = Annotated[
    str, typer.Argument(metavar="HASH", callback=lambda text: _submission_id(text), help="The submission's id.")
]
LogSubject = Annotated[
    str,
    typer.Argument(
        metavar="HASH",
        callback=lambda text: _subject(text),
        help="A submission, task, batch root, manifest hash, or any other subject of the log.",
    ),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger", callback=lambda text: _ledger_address(text), help="The Ledger that you trust; else as claimed."
    ),
]
BundleOption = Annotated[Path | None, typer.Option("--bundle", help="Check this file instead of asking.")]
TrustedHeadOption = Annotated[
    str | None,
    typer.Option(
        "--trusted-head",
        metavar="EPOCH:SIZE:ROOT|FILE",
        help="A log head that you know, or its file.",
    ),
]
TrustedBlockOption = Annotated[
    str | None,
    typer.Option("--trusted-block", metavar="NUMBER:HASH", help="A block that you trust, with --bundle."),
]
ModelOption = Annotated[
    Path | None, typer.Option("--model", help="Folder of the policy version; else fetched as it is on chain.")
]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", envvar="PROOFPOOL_CACHE", help="Where fetched weights are kept.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@dataclass(frozen=True)
class Source:
    """Where the evidence on a submission is from, and what it is held against."""

    coordinator: str
    chain: str | None
    ledger: str | None
    bundle: Path | None
    trusted_head: str | None


_SOURCE = (
    option("coordinator", CoordinatorOption, DEFAULT_URL),
    option("chain", ChainOption),
    option("ledger", LedgerOption),
    option("bundle", BundleOption),
    option("trusted_head", TrustedHeadOption),
)


def takes_evidence(command: Callable[..., Any]) -> Callable[..., Any]:
    """For a command with a keyword parameter `source: Source`."""
    return with_shared(command, _SOURCE, "source", Source)


def check_ledger(chain: str | None, ledger: str | None) -> None:
    """Raises UsageError for a Ledger that nothing would be read from."""
    from protocol.errors import UsageError

    if chain is None and ledger is not None:
        raise UsageError("a Ledger is read from a chain", "--ledger without --chain", "give --chain too")


def hash32(text: str, what: str = "id", todo: str = "the coordinator's GET /v1/log/entries has subjects") -> str:
    """Raises UsageError here, before anybody is asked for what can't be."""
    from protocol.canonical import is_hash32
    from protocol.errors import UsageError

    if not is_hash32(text.lower()):
        raise UsageError(f"that is no {what}", f"{text}: it is 0x and 64 hexadecimal digits", todo)
    return text.lower()


def address(text: str, todo: str = "copy it from the registration, or from a row of the log") -> str:
    """Small letters, as addresses are compared here; wallets and explorers print a checksum's capitals."""
    from protocol.address import small
    from protocol.errors import UsageError

    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", text):
        raise UsageError("that is no address", f"{text}: an address is 0x and 40 hexadecimal digits", todo)
    return small(text, "the address")


def _submission_id(text: str) -> str:
    todo = "copy one from `proofpool worker status`, or from the coordinator's GET /v1/submissions"
    return hash32(text, "submission id", todo)


def _subject(text: str) -> str:
    """Raises UsageError for what no leaf is about, or any number of them."""
    from protocol.errors import UsageError
    from protocol.wire import ZERO_HASH

    todo = "copy one from `proofpool worker status`, or from the coordinator's GET /v1/log/entries"
    if (subject := hash32(text, "subject of a log", todo)) == ZERO_HASH:
        raise UsageError(
            "nothing is about zero", "leaves with this subject are about the pool", "`proofpool audit export` has them"
        )
    return subject


def _ledger_address(text: str | None) -> str | None:
    return text and address(text, "give --ledger the address of the pool's Ledger")
