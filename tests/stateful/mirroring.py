"""Whether the SQL mirror says what the chain says: every row against its view, and every event against the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator import indexer
from coordinator.db.chain import (
    Allotment,
    ChainBlock,
    ChainEvent,
    CoordinatorBond,
    Earnings,
    Epoch,
    Node,
    Pool,
    Seat,
    Version,
)
from coordinator.facts import CASE_STATES
from protocol.chain.cases import CaseState
from protocol.chain.contracts import Read
from protocol.draw import FOREVER
from protocol.wire import ZERO_ADDRESS, ZERO_HASH
from tests.integration.conftest import World

NEVER = 2**64 - 1


@dataclass(frozen=True)
class Fact:
    """What a row holds, and where the chain says the same."""

    what: str
    kept: Any
    read: Read
    of: Callable[[Any], Any] = lambda found: found


def mirror_facts(session: Session, pool_id: int) -> list[Fact]:
    """Every row that the chain can confirm."""
    return [fact for part in PARTS for fact in part(session, pool_id)]


def check_facts(facts: Sequence[Fact], found: Sequence[Any]) -> None:
    """Raises AssertionError with every row that isn't the chain's, whose answers are `found`."""
    wrong = {
        fact.what: (fact.kept, fact.of(answer))
        for fact, answer in zip(facts, found, strict=True)
        if fact.kept != fact.of(answer)
    }
    assert not wrong, f"(kept, on chain): {wrong}"


def check_events(session: Session, world: World, first_block: int) -> None:
    """The kept blocks end with the head, and the kept events from `first_block` on are the chain's logs."""
    head = world.contracts.client.head()
    newest = session.scalar(select(ChainBlock).order_by(ChainBlock.number.desc()).limit(1))
    assert newest is not None and (newest.number, newest.block_hash) == (head.number, head.block_hash)
    events = session.scalars(select(ChainEvent).where(ChainEvent.block >= first_block).order_by(ChainEvent.id)).all()
    kept = [(row.block, row.log_index, row.transaction_hash, row.name, row.arguments) for row in events]
    assert kept == list(_logged(world, first_block, head.number))


def _logged(world: World, first: int, last: int) -> Iterator[tuple[int, int, str, str, dict[str, Any]]]:
    """The chain's events that concern the pool."""
    for log in world.contracts.client.logs(world.contracts.event_addresses, first, last):
        event = world.contracts.decode(log)
        if event is not None and indexer._is_ours(event.name, event.arguments, world.pool_id):
            arguments = {name: list(v) if isinstance(v, tuple) else v for name, v in event.arguments.items()}
            yield log.block_number, log.log_index, log.transaction_hash, event.name, arguments


def _pool(session: Session, pool_id: int) -> Iterator[Fact]:
    pool = session.get_one(Pool, pool_id)
    terms = (pool.price_wei, pool.verify_price_wei, pool.rules_hash)
    yield Fact("funded", pool.funded_wei, Read("pools", "budget", (pool_id,)))
    yield Fact("terms", terms, Read("pools", "termsOf", (pool_id,)), lambda found: tuple(found.values()))
    yield Fact(
        "flags",
        (pool.paused, 1 + pool.closing),
        Read("pools", "poolOf", (pool_id,)),
        lambda a: (a["paused"], a["state"]),
    )
    yield Fact("coordinator", pool.coordinator, Read("pools", "coordinatorOf", (pool_id,)))
    yield Fact("trainer", pool.trainer, Read("pools", "trainerOf", (pool_id,)))
    for bond in session.scalars(select(CoordinatorBond)):
        read = Read("pools", "bondOf", (pool_id, bond.coordinator))
        yield Fact(f"bond {bond.coordinator}", bond.amount_wei, read, lambda found: found["amount"])


def _stakes(session: Session, pool_id: int) -> Iterator[Fact]:
    for node in session.scalars(select(Node)):
        provider = ZERO_ADDRESS if node.removed else node.provider
        yield Fact(f"node {node.address}", provider, Read("registry", "providerOf", (node.address,)))
    for row in session.scalars(select(Allotment)):
        read = Read("registry", "allotmentOf", (row.node, pool_id))
        kept = (row.amount_wei, row.held_wei)
        yield Fact(f"allotment {row.node}", kept, read, lambda found: (found["amount"], found["held"]))


def _seats(session: Session, pool_id: int) -> Iterator[Fact]:
    seats = session.scalars(select(Seat).order_by(Seat.seat)).all()
    yield Fact("seats", len(seats), Read("registry", "numSeats", (pool_id,)))
    for seat in seats:
        until = NEVER if seat.active_until_epoch in (None, FOREVER) else seat.active_until_epoch
        kept = (seat.validator, seat.active_from_epoch, until)
        read = Read("registry", "seatOf", (pool_id, seat.seat))
        yield Fact(f"seat {seat.seat}", kept, read, lambda a: (a["validator"], a["active_from"], a["active_until"]))


def _versions(session: Session, pool_id: int) -> Iterator[Fact]:
    versions = session.scalars(select(Version)).all()
    yield Fact("versions", len(versions), Read("ledger", "numVersions", (pool_id,)))
    for row in versions:
        kept = (row.manifest_hash, row.beacon_block, row.beacon_hash or ZERO_HASH, row.published_time)
        read = Read("ledger", "versionOf", (pool_id, row.policy_version))
        yield Fact(f"version {row.policy_version}", kept, read, lambda found: tuple(found.values()))


def _epochs(session: Session, pool_id: int) -> Iterator[Fact]:
    epochs = session.scalars(select(Epoch).where(Epoch.block.is_not(None)).order_by(Epoch.epoch)).all()
    yield Fact("epochs", len(epochs), Read("ledger", "epochCount", (pool_id,)))
    for row in epochs:
        kept = (row.size, row.root, row.beacon_block, row.beacon_hash or ZERO_HASH)
        read = Read("ledger", "epochOf", (pool_id, row.epoch))
        yield Fact(f"epoch {row.epoch}", kept, read, lambda a: (a["size"], a["root"], a["beacon_block"], a["beacon"]))


def _earnings(session: Session, pool_id: int) -> Iterator[Fact]:
    for row in session.scalars(select(Earnings)):
        on_chain = row.transaction_hash is not None
        kept = (row.root, row.total_wei, row.claimable_time) if on_chain else (ZERO_HASH, 0, 0)
        read = Read("ledger", "earningsOf", (pool_id, row.epoch))
        yield Fact(f"earnings {row.epoch}", kept, read, lambda a: (a["root"], a["total"], a["claimable_time"]))


def _accounts(session: Session, pool_id: int) -> Iterator[Fact]:
    """What events add up to: claims, and earnings that cases withhold."""
    claimed, withheld = Counter[str](), Counter[str]()
    signs = {"EarningsHeld": 1, "EarningsFreed": -1}
    for event in session.scalars(select(ChainEvent).where(ChainEvent.name.in_(("Claimed", *signs)))):
        account, amount = event.arguments["account"], event.arguments["amount"]
        if event.name == "Claimed":
            claimed[account] += amount
        else:
            withheld[account] += signs[event.name] * amount
    for account, amount in claimed.items():
        yield Fact(f"claimed {account}", amount, Read("ledger", "claimed", (pool_id, account)))
    for account, amount in withheld.items():
        yield Fact(f"withheld {account}", amount, Read("ledger", "withheld", (pool_id, account)))


def _cases(session: Session, pool_id: int) -> Iterator[Fact]:
    """The last that events say of a case."""
    states: dict[str, str] = {}
    for event in session.scalars(
        select(ChainEvent).where(ChainEvent.name.in_(CASE_STATES)).order_by(ChainEvent.block, ChainEvent.log_index)
    ):
        states[event.subject] = CASE_STATES[event.name]
    for submission_id, state in states.items():
        read = Read("court", "caseOf", (submission_id,))
        yield Fact(f"case {submission_id}", state, read, lambda found: CaseState(found["state"]).name.lower())


PARTS = (_pool, _stakes, _seats, _versions, _epochs, _earnings, _accounts, _cases)
