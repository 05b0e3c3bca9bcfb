"""Stage index_chain: read the contracts' events, keep them, copy them into the log, mirror what they say.

In: blocks with the pool's confirmations, from `ChainClient`. Out: `ChainBlock` and `ChainEvent` rows, `chain.*` leaves,
and the mirrors of `coordinator/mirrors.py`: one transaction a page of blocks, so a crash loses or doubles nothing.
A page is taken only as an unbroken chain of parent hashes from the last block that is kept. Where the chain has
another block there, everything past the fork is forgotten and the mirrors are replayed (`coordinator/reorg.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainBlock, ChainEvent, ChainHead, Pool
from coordinator.log import Change, append_all
from coordinator.mirrors import apply_due_terms, apply_event
from coordinator.outbox import confirm_calls
from coordinator.reorg import forget_past
from protocol.canonical import JsonValue
from protocol.chain.block import Block, Log
from protocol.chain.contracts import as_text
from protocol.errors import ChainError
from protocol.telemetry import get_logger
from protocol.wire import ZERO_HASH

PAGE_BLOCKS = 200
KEPT_BLOCKS = 1000
"""Headers of older blocks are dropped: no reorg is expected to reach that far, and one that does replays all."""
HEAD_SECONDS = 1.0
POOLLESS_EVENTS = frozenset({"NodeAdded", "NodeRemoved"})
"""Events that name no pool and still concern this one: any node may be allotted to it later."""


@dataclass(frozen=True)
class Page:
    """Unbroken blocks and the logs of our contracts in them, both in order."""

    blocks: tuple[Block, ...]
    logs: tuple[Log, ...]


def index_chain(coordinator: Coordinator) -> None:
    """Take in everything that is confirmed by now."""
    head = coordinator.chain.client.head()
    _note_head(coordinator, head)
    if _is_displaced(coordinator, head):
        _forget_fork(coordinator)
    while (blocks := _next_blocks(coordinator, head)) is not None:
        page = _read_page(coordinator, *blocks)
        if _has_forked(coordinator, page):
            _forget_fork(coordinator)
        else:
            _take_page(coordinator, page)


def _is_displaced(coordinator: Coordinator, head: Block) -> bool:
    """Whether the head is another block than the one kept under its number: a reorg that made the chain no longer.

    A head below the newest kept block that *is* the kept one is a node that lags, and nothing is forgotten for it.
    """
    with coordinator.reading() as session:
        kept = session.get(ChainBlock, head.number)
    return kept is not None and kept.block_hash != head.block_hash


def _next_blocks(coordinator: Coordinator, head: Block) -> tuple[int, int] | None:
    """First and last block of the next page; None where nothing confirmed is left."""
    with coordinator.reading() as session:
        last = _newest_block(session)
        record = session.get(Pool, coordinator.config.pool_id)
    confirmed = head.number + 1 - max(1, record.confirmations if record else 1)
    start = coordinator.config.first_block if last is None else last.number + 1
    return None if start > confirmed else (start, min(confirmed, start + PAGE_BLOCKS - 1))


def _read_page(coordinator: Coordinator, start: int, end: int) -> Page:
    """Headers and logs of [start, end]. Raises ChainError where they aren't one chain's, or some are missing."""
    client = coordinator.chain.client
    blocks = tuple(client.blocks(start, end))
    logs = tuple(client.logs(coordinator.chain.event_addresses, start, end))
    hashes = {block.number: block.block_hash for block in blocks}
    broken = any(a.block_hash != b.parent_hash for a, b in zip(blocks, blocks[1:], strict=False))
    if broken or any(hashes.get(log.block_number) != log.block_hash for log in logs):
        raise ChainError("the chain changed while it was read", f"blocks {start} to {end}", "it is tried again")
    if (block := client.left_out(coordinator.chain.event_addresses, blocks, logs)) is not None:
        raise ChainError("the node leaves out logs", f"block {block.number} has some", "it is tried again")
    return Page(blocks, logs)


def _has_forked(coordinator: Coordinator, page: Page) -> bool:
    """Whether the chain now has another block where the page's parent should be."""
    with coordinator.reading() as session:
        last = _newest_block(session)
    return last is not None and last.number + 1 == page.blocks[0].number and not _follows(last, page)


def _follows(last: ChainBlock | None, page: Page) -> bool:
    first = page.blocks[0]
    return last is None or (last.number + 1, last.block_hash) == (first.number, first.parent_hash)


def _take_page(coordinator: Coordinator, page: Page) -> None:
    """Keep a page, all of it or nothing; nothing as well where another thread was faster."""
    with coordinator.writing() as session:
        if _follows(_newest_block(session), page):
            _keep(coordinator, session, page)


def _keep(coordinator: Coordinator, session: Session, page: Page) -> None:
    pool_id = coordinator.config.pool_id
    times = {block.number: block.timestamp for block in page.blocks}
    leaves = []
    for log in page.logs:
        event = coordinator.chain.decode(log)
        if event is None or not _is_ours(event.name, event.arguments, pool_id):
            continue
        row = ChainEvent(
            block=log.block_number,
            log_index=log.log_index,
            time=times[log.block_number],
            transaction_hash=log.transaction_hash,
            contract=event.contract,
            name=event.name,
            subject=_subject(event.arguments),
            arguments=event.arguments,
        )
        session.add(row)
        apply_event(session, row)
        leaves.append(Change(f"chain.{row.name}", row.subject, row.time, _copy(row, log.block_hash)))
    append_all(session, leaves)
    for block in page.blocks:
        session.add(ChainBlock(number=block.number, block_hash=block.block_hash, time=block.timestamp))
    newest = page.blocks[-1]
    confirm_calls(
        session, page.blocks[0].number, newest.number, {log.transaction_hash: log.block_number for log in page.logs}
    )
    session.execute(delete(ChainBlock).where(ChainBlock.number <= newest.number - KEPT_BLOCKS))
    apply_due_terms(session, pool_id, newest.timestamp)


def _is_ours(name: str, arguments: dict[str, Any], pool_id: int) -> bool:
    return arguments.get("pool_id") == pool_id or (name in POOLLESS_EVENTS and "pool_id" not in arguments)


def _subject(arguments: dict[str, Any]) -> str:
    """The id that the event is about, or zero."""
    for name in ("submission_id", "case_id", "id", "manifest_hash"):
        if name in arguments:
            return str(arguments[name])
    return ZERO_HASH


def _copy(row: ChainEvent, block_hash: str) -> dict[str, JsonValue]:
    """The log's copy of an event; (block_hash, log_index) names it for good."""
    return {
        "contract": row.contract,
        "block": row.block,
        "block_hash": block_hash,
        "log_index": row.log_index,
        "transaction_hash": row.transaction_hash,
        "arguments": as_text(row.arguments),
    }


def _newest_block(session: Session) -> ChainBlock | None:
    return session.scalar(select(ChainBlock).order_by(ChainBlock.number.desc()).limit(1))


def _forget_fork(coordinator: Coordinator) -> None:
    """Find the newest kept block that is still on the chain, and forget what came after it.

    Raises WrongChain where the node now serves another chain or deployment: then nothing is forgotten.
    """
    with coordinator.reading() as session:
        kept = session.scalars(select(ChainBlock).order_by(ChainBlock.number.desc())).all()
    fork = next((block.number for block in kept if _is_canonical(coordinator, block)), None)
    if fork is None:
        coordinator.chain.check()
        fork = coordinator.config.first_block - 1
    get_logger().warning("chain.reorged", fork_block=fork, num_blocks=kept[0].number - fork)
    with coordinator.writing() as session:
        last = _newest_block(session)
        if last is not None and last.block_hash == kept[0].block_hash:
            forget_past(session, coordinator.config.pool_id, fork)


def _is_canonical(coordinator: Coordinator, kept: ChainBlock) -> bool:
    block = coordinator.chain.client.block(kept.number)
    return block is not None and block.block_hash == kept.block_hash


def _note_head(coordinator: Coordinator, head: Block) -> None:
    """Remember how far the chain is; not more often than it matters, since each time is a write."""
    now = coordinator.clock.now()
    with coordinator.reading() as session:
        known = session.get(ChainHead, 1)
    if known is None or known.number != head.number or now - known.seen_time >= HEAD_SECONDS:
        with coordinator.writing() as session:
            session.merge(ChainHead(id=1, number=head.number, time=head.timestamp, seen_time=now))
