"""`proofpool audit show`: what happened to a hash, leaf by leaf and in one sentence."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer

from verifier.audit.options import (
    DEFAULT_URL,
    ChainOption,
    CoordinatorOption,
    JsonOption,
    LedgerOption,
    LogSubject,
    check_ledger,
)

if TYPE_CHECKING:
    from protocol.api import Freshness
    from protocol.client import CoordinatorClient
    from protocol.events import Related
    from verifier.audit.reports.show import Showing


def show(
    subject: LogSubject,
    coordinator: CoordinatorOption = DEFAULT_URL,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="Read the whole log too: was anything about it left out?")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Tell what happened to a submission, a task, a batch or anything else in the log, out of the log alone.

    Each leaf is hashed again, and with --chain held against the chain's heads: ✓ anchored, · not yet, ✗ isn't what it
    says. The last line is the sentence that `proofpool trace` and the API have too.
    """
    from protocol.chain.contracts import Contracts
    from protocol.client import CoordinatorClient
    from protocol.clock import SystemClock
    from protocol.plain import plain
    from verifier.audit.log.anchors import Anchors
    from verifier.audit.log.copies import Copies
    from verifier.audit.log.served_log import ServedLog
    from verifier.audit.reports.show import OnChain, tell

    check_ledger(chain, ledger)
    with ExitStack() as stack:
        client = stack.enter_context(closing(CoordinatorClient(coordinator)))
        pool, on_chain, anchor = client.pool(), None, ""
        if chain is not None:
            contracts = Contracts.connect(chain, ledger or pool.contracts.ledger, SystemClock())
            stack.enter_context(closing(contracts.client.rpc))
            on_chain = OnChain(Anchors(client, contracts, pool.pool_id), Copies(contracts, pool.pool_id))
            anchor = f"chain {contracts.client.chain_id}, Ledger {contracts.addresses.ledger}, pool {pool.pool_id}"
        log = ServedLog(client, pool.max_async)
        found, related = tell(subject, log, on_chain, anchor, _as_of(pool.freshness))
        if complete:
            found = _completed(found, related, client, chain, ledger)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        for line in found.lines():
            typer.echo(plain(line))
    return found.exit_code


def _as_of(fresh: Freshness) -> str:
    return f"coordinator indexed to block {fresh.indexed_block}, head {fresh.head_block}, lag {fresh.lag_seconds:.1f} s"


def _completed(
    found: Showing, related: Related, client: CoordinatorClient, chain: str | None, ledger: str | None
) -> Showing:
    """With what the coordinator left out. Raises VerificationFailed where the log isn't the one under its heads."""
    from verifier.audit.log.checked_log import checked_log
    from verifier.audit.log.reading import reading

    with checked_log(client, chain, ledger) as log, reading(log) as events:
        return found.completed(related, events, log.num_leaves)
