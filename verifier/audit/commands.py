"""`proofpool audit …`: verify a submission, check the money, keep a bundle; challenge, dispute; take over."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verifier.audit.challenge_commands import challenge
from verifier.audit.dispute_commands import dispute_earnings
from verifier.audit.inclusion_commands import challenge_inclusion
from verifier.audit.options import (
    DEFAULT_URL,
    ChainOption,
    CoordinatorOption,
    JsonOption,
    LedgerOption,
    SubmissionId,
    check_ledger,
)
from verifier.audit.show_commands import show
from verifier.audit.takeover_commands import attest_earnings, attest_epoch, claim, commit_earnings, commit_epoch
from verifier.audit.verifiers_commands import verifiers
from verifier.audit.watch_commands import checkpoint, watch

if TYPE_CHECKING:
    from protocol.bundle import ProofBundle
    from verifier.audit.ground import Ground

app = typer.Typer(no_args_is_help=True, help="Check the history: submissions, money, the log.")

_MAKE_ONE = "make one with `proofpool audit bundle`"


@app.command()
def verify(
    submission_id: SubmissionId,
    coordinator: CoordinatorOption = DEFAULT_URL,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    bundle: Annotated[Path | None, typer.Option("--bundle", help="Check this file instead of asking.")] = None,
    trusted_head: Annotated[
        str | None, typer.Option("--trusted-head", metavar="EPOCH:SIZE:ROOT", help="A log head that you know.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check one submission from its bytes to its payment or slash, each step ✓ or ✗."""
    from verifier.audit.report import print_report
    from verifier.audit.verify import verify_bundle

    _check_ground(chain, ledger, trusted_head)
    evidence = _read_bundle(bundle) if bundle is not None else _fetch_bundle(coordinator, submission_id)
    return print_report(verify_bundle(evidence, _ground(evidence, chain, ledger, trusted_head), submission_id), as_json)


@app.command()
def money(
    coordinator: CoordinatorOption = DEFAULT_URL,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check that what was earned, is owed and has been paid agrees with the contracts to the wei."""
    from protocol.chain.contracts import Contracts
    from protocol.client import CoordinatorClient
    from protocol.clock import SystemClock
    from protocol.errors import UsageError
    from verifier.audit.money import audit_money
    from verifier.audit.report import print_report

    if chain is None:
        raise UsageError("this needs a chain", "no --chain", "give the URL of a node of the pool's chain")
    with closing(CoordinatorClient(coordinator)) as client:
        pool = client.pool()
        contracts = Contracts.connect(chain, ledger or pool.contracts.ledger, SystemClock())
        with closing(contracts.client.rpc):
            return print_report(audit_money(client, contracts, pool), as_json)


@app.command()
def bundle(
    submission_id: SubmissionId,
    out: Annotated[Path, typer.Option("--out", help="Where to put the file.")],
    coordinator: CoordinatorOption = DEFAULT_URL,
) -> None:
    """Keep everything about a submission in one file, to be checked anywhere and at any time."""
    from protocol.files import write_atomically

    write_atomically(out, _fetch_bundle(coordinator, submission_id).model_dump_json().encode())
    typer.echo(str(out))


def _fetch_bundle(coordinator: str, submission_id: str) -> ProofBundle:
    from protocol.client import CoordinatorClient

    with closing(CoordinatorClient(coordinator)) as client:
        return client.bundle(submission_id)


def _read_bundle(file: Path) -> ProofBundle:
    from pydantic import ValidationError

    from protocol.bundle import ProofBundle
    from protocol.errors import UsageError

    try:
        return ProofBundle.model_validate_json(file.read_bytes())
    except OSError as error:
        raise UsageError("a bundle can't be read", f"{file}: {error.strerror}", _MAKE_ONE) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{file}: {first['msg']}{f' at `{place}`' if place else ''}"
        raise UsageError("this is no bundle, or a damaged one", why, _MAKE_ONE) from error


def _check_ground(chain: str | None, ledger: str | None, head: str | None) -> None:
    """Raises UsageError where a flag would be passed over: what wasn't looked at mustn't look trusted."""
    from protocol.errors import UsageError

    if chain is not None and head is not None:
        raise UsageError(
            "an audit stands on one thing", "both --chain (PROOFPOOL_CHAIN_URL) and --trusted-head", "give one"
        )
    check_ledger(chain, ledger)


def _ground(evidence: ProofBundle, chain: str | None, ledger: str | None, head: str | None) -> Ground:
    from protocol.chain.contracts import Contracts
    from protocol.clock import SystemClock
    from verifier.audit.ground import chain_ground, claims_alone, parse_head, trusted_head

    if chain is not None:
        contracts = Contracts.connect(chain, ledger or evidence.chain.contracts.ledger, SystemClock())
        with closing(contracts.client.rpc):
            return chain_ground(evidence, contracts)
    return claims_alone(evidence) if head is None else trusted_head(evidence, *parse_head(head))


WATCHES = (checkpoint, watch)
HISTORY = (show,)
REPORTS = (verifiers,)
CHALLENGES = (challenge, dispute_earnings, challenge_inclusion)
TAKEOVER = (attest_epoch, commit_epoch, attest_earnings, commit_earnings, claim)
for command in (*WATCHES, *HISTORY, *REPORTS, *CHALLENGES, *TAKEOVER):
    app.command()(command)
