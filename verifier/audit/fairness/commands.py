"""`proofpool audit fairness`: leased against delivered, by provider and node; overlap, refusals, promises."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from verifier.audit.options import DEFAULT_URL, ChainOption, CoordinatorOption, JsonOption, LedgerOption


def fairness(
    coordinator: CoordinatorOption = DEFAULT_URL,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    files: Annotated[bool, typer.Option("--files", help="Fetch what was handed in: rewards, overlap.")] = False,
    model: Annotated[
        Path | None, typer.Option("--model", help="A folder with the pool's tokenizer, to check the environment with.")
    ] = None,
    receipts: Annotated[
        list[Path] | None,
        typer.Option("--receipts", help="A worker's outbox, an answer file or a bundle; may be given several times."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Tell of each provider what it was leased and what came back: difficulty, lengths, rewards; and who was refused.

    The whole log is read and held against the chain's heads, or without --chain against the coordinator's own. What was
    asked follows from the seeds. Exit code 3 where the log isn't the one under the heads, or breaks a signed promise.
    """
    from protocol.client import CoordinatorClient
    from protocol.errors import VerificationFailed
    from verifier.audit.fairness.promises import read_receipts
    from verifier.audit.fairness.reading import read_fairness
    from verifier.audit.fairness.table import fairness_lines
    from verifier.audit.log.checked_log import checked_log

    held = read_receipts(receipts or ())
    with closing(CoordinatorClient(coordinator)) as client, checked_log(client, chain, ledger) as log:
        report = read_fairness(client, log, with_files=files, model=model, receipts=held)
    if as_json:
        typer.echo(json.dumps(report.as_json(log.as_json()), indent=2))
    else:
        for line in (log.line(), "", *fairness_lines(report)):
            typer.echo(line)
    return VerificationFailed.exit_code if report.broken else 0
