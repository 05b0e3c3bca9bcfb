"""`proofpool audit …`: verify a submission, check the money, keep a bundle; challenge, dispute; take over."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from verifier.audit.bundle.evidence import fetch_bundle, fetch_bundle_to_block, gathered, read_head
from verifier.audit.court.challenge_commands import challenge
from verifier.audit.court.dispute_commands import dispute_earnings
from verifier.audit.court.inclusion_commands import challenge_inclusion
from verifier.audit.court.takeover_commands import attest_earnings, attest_epoch, claim, commit_earnings, commit_epoch
from verifier.audit.fairness.commands import fairness
from verifier.audit.options import (
    DEFAULT_URL,
    ChainOption,
    CoordinatorOption,
    JsonOption,
    LedgerOption,
    Source,
    SubmissionId,
    TrustedBlockOption,
    TrustedHeadOption,
    takes_evidence,
)
from verifier.audit.replay.commands import replay
from verifier.audit.reports.export_commands import export
from verifier.audit.reports.show_commands import show
from verifier.audit.reports.verifiers_commands import verifiers
from verifier.audit.watch.commands import checkpoint, watch

app = typer.Typer(no_args_is_help=True, help="Check the history: submissions, money, the log.")


@app.command()
@takes_evidence
def verify(
    submission_id: SubmissionId,
    trusted_block: TrustedBlockOption = None,
    as_json: JsonOption = False,
    *,
    source: Source,
) -> int:
    """Check one submission from its bytes to its payment or slash, each step ✓ or ✗."""
    from verifier.audit.bundle.verify import verify_bundle
    from verifier.audit.report import print_report

    evidence, ground = gathered(submission_id, source, trusted_block)
    return print_report(verify_bundle(evidence, ground, submission_id), as_json)


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
    from verifier.audit.report import print_report
    from verifier.audit.reports.money import audit_money

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
    trusted_head: TrustedHeadOption = None,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    block: Annotated[
        int | None, typer.Option("--block", min=0, help="With --chain: the block to lead to, else the newest.")
    ] = None,
) -> None:
    """Keep everything about a submission in one file, to be checked anywhere and at any time.

    Its proofs lead to the log's newest head, or to the one that is given; with --chain to a block, for --trusted-block.
    """
    from protocol.files import write_atomically

    if trusted_head is not None:
        found = fetch_bundle(coordinator, submission_id, read_head(trusted_head).size)
    else:
        found = fetch_bundle_to_block(coordinator, submission_id, chain, ledger, block)
    write_atomically(out, found.model_dump_json().encode())
    typer.echo(str(out))


WATCHES = (checkpoint, watch)
HISTORY = (show, export)
REPORTS = (replay, verifiers, fairness)
CHALLENGES = (challenge, dispute_earnings, challenge_inclusion)
TAKEOVER = (attest_epoch, commit_epoch, attest_earnings, commit_earnings, claim)
for command in (*WATCHES, *HISTORY, *REPORTS, *CHALLENGES, *TAKEOVER):
    app.command()(command)
