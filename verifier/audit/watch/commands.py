"""`proofpool audit watch` and `audit checkpoint`: remember the log, and look whether it is still the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verifier.audit.options import (
    DEFAULT_URL,
    CacheOption,
    ChainOption,
    CoordinatorOption,
    JsonOption,
    LedgerOption,
    address,
)

if TYPE_CHECKING:
    from protocol.chain.contracts import Contracts
    from protocol.chain.pool import LogHead
    from protocol.client import CoordinatorClient
    from protocol.merkle.note import NoteKey
    from protocol.progress import Steps
    from verifier.audit.watch.alerts import Alert
    from verifier.audit.watch.checkpoint import Remembered
    from verifier.audit.watch.watch import Progress, Replay, Watch

NUM_EPOCHS_SHOWN = 10
WatchedChain = Annotated[str, typer.Option("--chain", envvar="PROOFPOOL_CHAIN_URL", help="JSON-RPC of a node.")]
WitnessOption = Annotated[
    list[str] | None, typer.Option("--witness", metavar="NAME+ID+KEY", help="A witness that must have seen it.")
]


def watch(
    state: Annotated[Path, typer.Option("--state", help="The folder that remembers.")],
    chain: WatchedChain,
    coordinator: CoordinatorOption = DEFAULT_URL,
    ledger: LedgerOption = None,
    checkpoint: Annotated[
        list[Path] | None, typer.Option("--checkpoint", help="A signed checkpoint that you kept; again for more.")
    ] = None,
    node: Annotated[list[str] | None, typer.Option("--node", help="Tell of this node; again for more.")] = None,
    replay: Annotated[
        float, typer.Option("--replay", min=0, max=1, help="Judge this share of the settled work again.")
    ] = 0.0,
    cache: CacheOption = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, at every leaf, and end.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 10.0,
    again: Annotated[int, typer.Option("--again", min=0, help="Leaves of before to look at again each time.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
) -> int:
    """Follow the log, remember its checkpoints, and tell what is wrong or worth knowing. Exit code 3 after a fault."""
    from protocol.clock import SystemClock
    from protocol.lock import FolderLock
    from protocol.signals import stop_on_signals
    from protocol.waiting import Waiting

    nodes = [address(one, "give --node 0x and 40 hexadecimal digits") for one in node or []]
    with FolderLock(state, "audit watch"), _watching(state, coordinator, chain, ledger, nodes, replay, cache) as found:
        for file in checkpoint or []:
            found.remember(_read_note(file), str(file))
        if once:
            return _look_once(found, as_json)
        waiting = Waiting(SystemClock(), stop_on_signals("audit"), interval)
        while not waiting.stop.is_set():
            waiting.until("coordinator and chain", lambda: _turn(found, again, as_json))
            waiting.clock.wait(waiting.stop, interval)
        return 3 if found.progress.num_faults else 0


def checkpoint(
    coordinator: CoordinatorOption = DEFAULT_URL,
    chain: ChainOption = None,
    ledger: LedgerOption = None,
    note: Annotated[Path | None, typer.Option("--note", help="Check this one instead of the newest.")] = None,
    since: Annotated[
        list[Path] | None, typer.Option("--since", help="One that you kept: is it a prefix of this? Again for more.")
    ] = None,
    log_key: Annotated[
        str | None, typer.Option("--log-key", metavar="NAME+ID+KEY", help="The log's key, where no chain is asked.")
    ] = None,
    witness: WitnessOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Keep it in this file; what is there is held against it first.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check the log's newest signed checkpoint, and keep it: what it signs can't be taken back."""
    from protocol.client import CoordinatorClient
    from protocol.errors import UsageError
    from protocol.files import write_atomically
    from verifier.audit.report import print_report
    from verifier.audit.watch.checkpoint import audit_checkpoint

    if (chain is None) == (log_key is None):
        raise UsageError(
            "whose checkpoint is it?", "give one of --chain and --log-key", "`audit checkpoint --chain` prints the key"
        )
    witnesses = tuple(_parse_key("--witness", text) for text in witness or [])
    known_key = None if log_key is None else _parse_key("--log-key", log_key)
    with closing(CoordinatorClient(coordinator)) as client:
        ground = NoteGround(known_key, None) if known_key else _from_chain(client, chain or "", ledger)
        text = _read_note(note) if note is not None else client.checkpoint()
        replaced = [out] if out is not None and out.exists() else []
        kept = [_remembered(file, ground.key) for file in dict.fromkeys([*(since or []), *replaced])]
        report = audit_checkpoint(text, ground.key, client, ground.heads, kept, witnesses, is_newest=note is None)
    if out is not None and report.exit_code == 0:
        write_atomically(out, text.encode())
    if not as_json:
        typer.echo(f"log key: {ground.key}")
    return print_report(report, as_json)


@dataclass(frozen=True)
class NoteGround:
    """The log's key, and the chain's heads where one was asked."""

    key: NoteKey
    heads: list[LogHead] | None


def _from_chain(client: CoordinatorClient, chain: str, ledger: str | None) -> NoteGround:
    from protocol.chain.contracts import Contracts
    from protocol.clock import SystemClock
    from verifier.audit.log.log_reader import heads_on_chain
    from verifier.audit.watch.checkpoint import log_key

    pool = client.pool()
    contracts = Contracts.connect(chain, ledger or pool.contracts.ledger, SystemClock())
    with closing(contracts.client.rpc):
        return NoteGround(log_key(contracts, pool.pool_id), list(heads_on_chain(contracts, pool.pool_id)))


@contextmanager
def _watching(
    state: Path,
    coordinator: str,
    chain: str,
    ledger: str | None,
    nodes: Sequence[str],
    share: float,
    cache: Path | None,
) -> Iterator[Watch]:
    """The watch that `state` remembers. Raises ConfigError where it remembers another pool's log."""
    from protocol.chain.contracts import Contracts
    from protocol.chain.deployment import stay_with
    from protocol.chain.pool import ChainPool
    from protocol.client import CoordinatorClient
    from protocol.clock import SystemClock
    from protocol.errors import NotEligible
    from verifier.audit.log.copies import Copies
    from verifier.audit.watch.checkpoint import log_key
    from verifier.audit.watch.watch import Watch, stay_with_pool
    from verifier.store import open_store

    with closing(CoordinatorClient(coordinator)) as client, closing(open_store(state)) as db:
        pool = client.pool()
        contracts = Contracts.connect(chain, ledger or pool.contracts.ledger, SystemClock())
        with closing(contracts.client.rpc):
            stay_with(state, contracts)
            stay_with_pool(db, pool.pool_id)
            try:
                key = log_key(contracts, pool.pool_id)
            except NotEligible as lack:
                typer.echo(f"{lack}", err=True)
                key = None
            replay = _judge(client, contracts, cache) if share else None
            chain_pool = ChainPool(contracts, pool.pool_id)
            yield Watch(
                db,
                client,
                chain_pool,
                key=key,
                nodes=nodes,
                replay=replay,
                share=share,
                shown=_shown,
                open_events=partial(Copies, contracts, pool.pool_id),
            )


def _shown(num_epochs: int) -> AbstractContextManager[Steps]:
    """On stderr how far a long look is: the first, or one after the watch was away. The usual ones are short."""
    from protocol.progress import Progress, Unseen

    if num_epochs < NUM_EPOCHS_SHOWN:
        return nullcontext(Unseen())
    return Progress("new epochs of the log", num_epochs, is_patient=True)


def _judge(client: CoordinatorClient, contracts: Contracts, cache: Path | None) -> Replay:
    """What the verdicts on a submission have to answer for, by this machine's own judgement."""
    from protocol.progress import Progress
    from verifier.audit.bundle.ground import chain_ground
    from verifier.audit.replay.pinned import ModelSource
    from verifier.audit.replay.replay import NUM_STEPS, Replayer

    replayer = Replayer(ModelSource(None, lambda: client.pool().shardcast_urls, cache), client.bundle)

    def judge(submission_id: str) -> Sequence[str]:
        evidence = client.bundle(submission_id)
        with Progress(f"replay of {submission_id}", NUM_STEPS, verb="waiting for", is_patient=True) as progress:
            found = replayer.replay(evidence, chain_ground(evidence, contracts), submission_id, progress)
        missed = ["a forgery that no seat has looked at was accepted"] if found.missed_by_draw else []
        return [f"{one.validator}: {fault}" for one in found.verdicts for fault in one.faults] + missed

    return judge


def _look_once(found: Watch, as_json: bool) -> int:
    """The exit code. Raises Unreachable, unless a fault was found: that outweighs what couldn't be looked at."""
    from protocol.errors import Unreachable
    from protocol.plain import plain

    try:
        _turn(found, None, as_json)
    except Unreachable as lack:
        if not found.progress.num_faults:
            raise
        typer.echo(f"not all could be looked at: {plain(str(lack))}", err=True)
    return 3 if found.progress.num_faults else 0


def _turn(found: Watch, num_again: int | None, as_json: bool) -> Progress:
    """Look once and tell."""
    for alert in found.turn(num_again):
        _tell(alert, as_json)
    _tell(found.progress, as_json)
    return found.progress


def _tell(news: Alert | Progress, as_json: bool) -> None:
    typer.echo(json.dumps(news.as_json()) if as_json else news.line())
    sys.stdout.flush()


def _read_note(file: Path) -> str:
    from protocol.errors import UsageError, VerificationFailed
    from protocol.merkle.note import split_note

    todo = "keep one with `proofpool audit checkpoint --out FILE`"
    try:
        split_note(text := file.read_text("utf-8"))
    except OSError as error:
        raise UsageError("a checkpoint can't be read", f"{file}: {error.strerror}", todo) from error
    except ValueError as error:
        raise UsageError("a checkpoint can't be read", f"{file} isn't text", todo) from error
    except VerificationFailed as error:
        raise UsageError("that is no signed checkpoint", f"{file}: {error.what}", todo) from error
    return text


def _parse_key(option: str, text: str) -> NoteKey:
    """A key with a wrong letter is a slip of who typed it, and says nothing about the log."""
    from protocol.errors import UsageError, VerificationFailed
    from protocol.merkle.note import NoteKey

    try:
        return NoteKey.parse(text)
    except VerificationFailed as error:
        raise UsageError(
            error.what, f"{option} {error.why}", "write NAME+ID+KEY, as the log or witness gives it"
        ) from error


def _remembered(file: Path, key: NoteKey) -> Remembered:
    from protocol.errors import VerificationFailed
    from protocol.merkle.checkpoint import open_checkpoint
    from verifier.audit.watch.checkpoint import Remembered

    try:
        return Remembered(str(file), open_checkpoint(_read_note(file), key))
    except VerificationFailed as error:
        raise VerificationFailed(error.what, f"{file}: {error.why}", error.todo) from error
