"""The account with which an auditor tells the chain something, and the options that name it.

In: a node's URL, the Ledger that is meant, a keystore. Out: the deployment, checked, and a lane to send with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protocol.chain.contracts import Contracts
    from protocol.chain.lane import Lane

ChainOption = Annotated[str, typer.Option("--chain", envvar="PROOFPOOL_CHAIN_URL", help="JSON-RPC of a node.")]
LedgerOption = Annotated[str, typer.Option("--ledger", help="The pool's Ledger contract, which names the others.")]
KeystoreOption = Annotated[Path | None, typer.Option("--keystore", help="The key that sends and pays.")]
PasswordOption = Annotated[Path | None, typer.Option("--password-file", help="The keystore's password.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@dataclass(frozen=True)
class Sender:
    contracts: Contracts
    lane: Lane


@contextmanager
def sending(chain: str, ledger: str, keystore: Path | None, password_file: Path | None) -> Iterator[Sender]:
    """Raises WrongChain for other contracts than expected, KeyFailure for a key that doesn't open."""
    from protocol.chain.contracts import Contracts
    from protocol.chain.journal import Journal
    from protocol.chain.lane import Lane
    from protocol.clock import SystemClock
    from protocol.keystore import load_signer

    contracts = Contracts.connect(chain, ledger, SystemClock())
    with closing(contracts.client.rpc):
        signer = load_signer(contracts.client.chain_id, keystore, password_file)
        with closing(Journal.beside(keystore)) as journal:
            yield Sender(contracts, Lane(contracts.client, signer, SystemClock(), journal=journal))


def tell(as_json: bool, facts: dict[str, object]) -> None:
    """What was done, for a script or for people, who aren't shown what there is none of."""
    shown = ((name, _words(value)) for name, value in facts.items())
    document = json.dumps({"schema_version": 1} | facts)
    typer.echo(document if as_json else "\n".join(f"{name:<17} {words}" for name, words in shown if words))


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
