"""`proofpool audit verifiers`: what each validator has done, from the checked log alone."""

from __future__ import annotations

import json
from contextlib import closing

import typer

from verifier.audit.options import DEFAULT_URL, ChainOption, CoordinatorOption, JsonOption, LedgerOption


def verifiers(
    coordinator: CoordinatorOption = DEFAULT_URL,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell of each validator: verdicts, agreement with others, overturned ones, time, missed turns, stamps, pay.

    The whole log is read and held against the chain's heads, or without --chain against the coordinator's own. Exit
    code 3 where the log isn't the one under them.
    """
    from protocol.client import CoordinatorClient
    from verifier.audit.log.checked_log import checked_log
    from verifier.audit.log.reading import reading
    from verifier.audit.reports.accountability import account_for
    from verifier.audit.reports.accountability_table import accountability_lines
    from verifier.audit.reports.judging import Judging

    judging = Judging()
    with (
        closing(CoordinatorClient(coordinator)) as client,
        checked_log(client, chain, ledger) as log,
        reading(log) as events,
    ):
        for _, entry in events:
            judging.note(entry)
    report = account_for(judging)
    if as_json:
        typer.echo(json.dumps(report.as_json(log.as_json()), indent=2))
        return
    for line in (log.line(), "", *accountability_lines(report)):
        typer.echo(line)
