"""A statement from its sources to the screen: chain and log are opened, read, and printed as was asked for.

In: `ProviderConfig`, whose account, a log's file or the coordinator's. Out: text, CSV or JSON on stdout; exit code 0,
or 3 where the two sides differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from protocol.client import CoordinatorClient
from protocol.clock import SystemClock
from protocol.errors import UsageError, VerificationFailed
from worker.provider.config import ProviderConfig
from worker.provider.holdings import first_block_of
from worker.provider.paid_log import ExportedLog, PayingLog, ServedLog
from worker.provider.statement import Period, ProviderStatement, make_statement
from worker.provider.statement_table import lines_of, write_csv
from worker.provider.wallet import looking, pool_of


def run_statement(config: ProviderConfig, provider: str | None, file: Path | None, period: Period) -> ProviderStatement:
    """Raises UsageError without a log, ChainError, CoordinatorUnreachable, VerificationFailed for an unreadable log."""
    with _log(config, file) as log, looking(config, SystemClock(), provider) as wallet:
        return make_statement(wallet, pool_of(config), log, period, first_block_of(config, wallet.contracts))


def print_statement(found: ProviderStatement, *, as_csv: bool, as_json: bool) -> int:
    """The exit code: 3 where log and contracts differ, which is said on stderr too."""
    if as_csv and as_json:
        raise UsageError("one form at a time", "--csv and --json", "leave one of them out")
    if as_json:
        print(found.model_dump_json())
    elif as_csv:
        write_csv(found, sys.stdout)
    else:
        print("\n".join(lines_of(found)))
    for difference in found.differences:
        print(f"✗ {difference}", file=sys.stderr)
    return VerificationFailed.exit_code if found.differences else 0


@contextmanager
def _log(config: ProviderConfig, file: Path | None) -> Iterator[PayingLog]:
    if file is not None:
        yield ExportedLog(file)
        return
    if config.coordinator_url is None:
        todo = "give --coordinator URL, or --log with a file of `proofpool audit export --format jsonl`"
        raise UsageError("there is no log to read", "neither a coordinator nor a file", todo)
    with closing(CoordinatorClient(config.coordinator_url)) as client:
        yield ServedLog(client)
