"""Commands of `proofpool audit` that anchor an epoch, commit its earnings and claim them without a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import BaseModel

from verifier.audit.court.sender import (
    ChainOption,
    JsonOption,
    KeystoreOption,
    LedgerOption,
    PasswordOption,
    sending,
    tell,
)

if TYPE_CHECKING:
    from protocol.chain.block import Receipt
    from protocol.chain.pool import ChainPool
    from protocol.signing import Signer
    from verifier.history import History

DocumentT = TypeVar("DocumentT", bound=BaseModel)

_KINDS = {
    "AttestedEpoch": ("an epoch that a seat attests", "make it with `proofpool audit attest-epoch`"),
    "AttestedEarnings": (
        "a statement of earnings",
        "make it with `proofpool audit attest-earnings`; for a claim, the coordinator's GET /v1/earnings is one too",
    ),
}
"""What a file has to be, and where one comes from."""
ConfigFile = Annotated[Path | None, typer.Option("--config", help="The verifier's TOML file.")]
Out = Annotated[Path, typer.Option("--out", help="Where to put the file.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of different validators.")]


def attest_epoch(out: Out, config: ConfigFile = None, as_json: JsonOption = False) -> None:
    """Sign, for own seats, that the log as held here goes on without its coordinator. The verifier must not run."""
    from verifier import takeover

    document = _attested(config, takeover.attest_epoch)
    _write(out, document, as_json, f"epoch {document.epoch} of {document.size} leaves under {document.root}")


def attest_earnings(out: Out, config: ConfigFile = None, as_json: JsonOption = False) -> None:
    """Sign, for own seats, what every account has earned up to the last epoch. The verifier must not run.

    Where all of it is committed already, the file says what accounts can claim by it, and nothing is signed.
    """
    from verifier import takeover

    document = _attested(config, takeover.attest_earnings)
    done = "" if document.attestations else ", committed already: to be claimed"
    _write(out, document, as_json, f"{document.total_wei} wei up to epoch {document.epoch}{done}")


def commit_epoch(
    files: Files,
    chain: ChainOption,
    ledger: LedgerOption,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Anchor the head that two thirds of the drawn seats attest. Anybody may, once the coordinator is silent."""
    from verifier.audit.court.takeover import Committer
    from verifier.takeover import AttestedEpoch

    documents = [_read(file, AttestedEpoch) for file in files]
    with sending(chain, ledger, keystore, password_file) as sender:
        committer = Committer(sender.contracts, documents[0].pool_id, sender.lane)
        _tell_committed(as_json, documents[0].epoch, committer.commit_epoch(documents))


def commit_earnings(
    files: Files,
    chain: ChainOption,
    ledger: LedgerOption,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Commit the earnings that drawn seats attest. Anybody may, once the coordinator is silent."""
    from verifier.audit.court.takeover import Committer
    from verifier.takeover import AttestedEarnings

    documents = [_read(file, AttestedEarnings) for file in files]
    with sending(chain, ledger, keystore, password_file) as sender:
        committer = Committer(sender.contracts, documents[0].pool_id, sender.lane)
        _tell_committed(as_json, documents[0].epoch, committer.commit_earnings(documents))


def claim(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A statement of earnings whose root is on chain.")],
    account: Annotated[str, typer.Option("--account", help="Whose earnings; they are paid to this address.")],
    chain: ChainOption,
    ledger: LedgerOption,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have an account paid what it has earned. Anybody may pay the gas.

    FILE is the coordinator's statement (GET /v1/earnings), or without a coordinator one of `audit attest-earnings`.
    """
    from protocol.address import parse_address
    from verifier.audit.court.takeover import Committer
    from verifier.takeover import AttestedEarnings

    document, whose = _read(file, AttestedEarnings), parse_address(account, "--account")
    with sending(chain, ledger, keystore, password_file) as sender:
        amount_wei = Committer(sender.contracts, document.pool_id, sender.lane).claim(document, whose)
    tell(as_json, {"account": whose, "amount_wei": str(amount_wei)})


def _attested(config: Path | None, attest: Callable[[History, ChainPool, Signer], DocumentT]) -> DocumentT:
    """What own seats sign of the log as it is held here, once the coordinator is silent."""
    from verifier import takeover

    with _verifier(config) as (history, pool, signer):
        takeover.check_silent(pool.contracts, pool.pool_id)
        takeover.follow(history, pool, takeover.refuse_entries)
        return attest(history, pool, signer)


def _tell_committed(as_json: bool, epoch: int, receipt: Receipt) -> None:
    tell(as_json, {"epoch": epoch, "transaction_hash": receipt.transaction_hash})


@contextmanager
def _verifier(file: Path | None) -> Iterator[tuple[History, ChainPool, Signer]]:
    """The verifier's own log, chain and key, while no verifier runs."""
    from protocol.chain.deployment import connect
    from protocol.chain.pool import ChainPool
    from protocol.clock import SystemClock
    from protocol.config import load_config
    from protocol.errors import ConfigError
    from protocol.keystore import load_signer
    from protocol.lock import FolderLock
    from verifier.config import VerifierConfig
    from verifier.history import History
    from verifier.store import open_store

    config = load_config(VerifierConfig, "verifier", file)
    if config.ledger is None and config.deployment is None:
        raise ConfigError(
            "the pool's Ledger isn't named", "no coordinator names it any more", "set `ledger` or `deployment`"
        )
    with FolderLock(config.data_dir, "verifier"), closing(open_store(config.data_dir)) as db:
        contracts = connect(config.chain_url, SystemClock(), deployment=config.deployment, ledger=config.ledger)
        with closing(contracts.client.rpc):
            signer = load_signer(contracts.client.chain_id, config.keystore, config.password_file)
            yield History(db), ChainPool(contracts, config.pool_id), signer


def _read(file: Path, shape: type[DocumentT]) -> DocumentT:
    from verifier.audit.document import read_document

    return read_document(file, shape, *_KINDS[shape.__name__])


def _write(out: Path, document: BaseModel, as_json: bool, what: str) -> None:
    from protocol.files import write_atomically

    write_atomically(out, document.model_dump_json().encode())
    typer.echo(document.model_dump_json() if as_json else f"{what}: {out}")
