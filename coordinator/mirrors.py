"""What the contracts say, as rows: one handler an event, each a plain change of a mirror.

In: a `ChainEvent` in chain order. Out: `Pool`, `CoordinatorBond`, `Node`, `Allotment`, `Seat`, `Version`, `Epoch`,
`Earnings` rows. A handler looks at nothing but the event and the mirrors, so that a replay of all events gives the
same rows; a version that comes back after a reorg has the release that the log has of it. Events that change no
mirror (cases, claims) are kept as `ChainEvent` only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.db.chain import Allotment, ChainEvent, CoordinatorBond, Earnings, Epoch, Node, Pool, Seat, Version
from coordinator.db.log import Event
from protocol.errors import ProofpoolError

Arguments = dict[str, Any]
ANNOUNCED = "weights.announced"
ROLE_COLUMNS = {0: "coordinator", 1: "trainer"}
"""Roles of `Pools.Role` that have a column; the creator's key matters on chain only."""


def apply_event(session: Session, event: ChainEvent) -> None:
    """Change the mirrors as the event says."""
    if (handler := _HANDLERS.get(event.name)) is not None:
        handler(session, event, event.arguments)
        session.flush()


def apply_due_terms(session: Session, pool_id: int, now: int) -> None:
    """Announced price and rules come into force with the first block at or after their time (chain seconds)."""
    pool = session.get(Pool, pool_id)
    announced = session.scalars(select(ChainEvent).where(ChainEvent.name == "TermsAnnounced").order_by(ChainEvent.id))
    for event in announced:
        if pool is not None and event.arguments["effective_time"] <= now:
            pool.price_wei = event.arguments["price"]
            pool.verify_price_wei = event.arguments["verify_price"]
            pool.rules_hash = event.arguments["rules_hash"]


def _pool_created(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    config = arguments["config"]
    session.add(
        Pool(
            pool_id=arguments["pool_id"],
            coordinator=config["coordinator"],
            trainer=config["trainer"],
            rules_hash=config["rules_hash"],
            model_hash=config["model_hash"],
            price_wei=config["price"],
            verify_price_wei=config["verify_price"],
            min_allotment_wei=config["min_allotment"],
            funded_wei=0,
            max_async=config["max_async"],
            accept_quorum=config["accept_quorum"],
            slash_quorum=config["slash_quorum"],
            draw_limit=config["draw_limit"],
            reaudit_bps=config["reaudit_bps"],
            confirmations=config["confirmations"],
            lease_max_seconds=config["lease_max"],
            coordinator_bond_wei=config["coordinator_bond"],
        )
    )


def _funded(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _pool(session, arguments).funded_wei += arguments["amount"]


def _pool_refunded(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _pool(session, arguments).funded_wei -= arguments["amount"]


def _paused(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _pool(session, arguments).paused = arguments["paused"]


def _pool_closing(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _pool(session, arguments).closing = True


def _key_changed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    if (column := ROLE_COLUMNS.get(arguments["role"])) is not None:
        setattr(_pool(session, arguments), column, arguments["key"])


def _coordinator_bonded(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _bond(session, arguments).amount_wei = arguments["total"]


def _bond_lowered(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _bond(session, arguments).amount_wei -= arguments["amount"]


def _node_added(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    session.merge(Node(address=arguments["node"], provider=arguments["provider"], removed=False))


def _node_removed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    session.get_one(Node, arguments["node"]).removed = True


def _allotted(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _allotment(session, arguments).amount_wei = arguments["total"]


def _deallotted(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _allotment(session, arguments).amount_wei -= arguments["amount"]


def _allotment_held(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _allotment(session, arguments).held_wei += arguments["amount"]


def _allotment_freed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _allotment(session, arguments).held_wei -= arguments["amount"]


def _slashed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    """A slash takes from what is allotted before it reaches what is unbonding."""
    allotment = _allotment(session, arguments)
    allotment.amount_wei -= min(allotment.amount_wei, arguments["amount"])
    allotment.held_wei -= arguments["amount"] + arguments["freed"]


def _seat_bonded(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    session.add(
        Seat(
            pool_id=arguments["pool_id"],
            seat=arguments["seat"],
            validator=arguments["validator"],
            active_from_epoch=arguments["active_from_epoch"],
        )
    )


def _seat_released(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    seat = session.get_one(Seat, (arguments["pool_id"], arguments["seat"]))
    seat.active_until_epoch = arguments["active_until_epoch"]


def _weights_published(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    session.add(
        Version(
            pool_id=arguments["pool_id"],
            policy_version=arguments["version"],
            manifest_hash=arguments["manifest_hash"],
            beacon_block=arguments["beacon_block"],
            published_time=event.time,
            release_signature=_announced(session, arguments["version"], arguments["manifest_hash"]),
        )
    )


def _announced(session: Session, policy_version: int, manifest_hash: str) -> str | None:
    """The trainer's signature, where it has announced this very version before a reorg took it off the chain."""
    announced = select(Event.document).where(Event.type == ANNOUNCED, Event.subject == manifest_hash)
    for document in session.scalars(announced):
        data = json.loads(document)["data"]
        if data["policy_version"] == policy_version:
            return str(data["signature"])
    return None


def _version_sealed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _version(session, arguments).beacon_hash = arguments["beacon_hash"]


def _version_rearmed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    _version(session, arguments).beacon_block = arguments["beacon_block"]


def _epoch_committed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    """The chain has a head of this log. Another head than ours means that two logs use one key: nothing goes on."""
    epoch = session.get(Epoch, arguments["epoch"])
    if epoch is None or (epoch.size, epoch.root) != (arguments["size"], arguments["root"]):
        raise ProofpoolError(
            f"the chain anchors another log in epoch {arguments['epoch']}",
            f"size {arguments['size']} under {arguments['root']}, here {epoch and (epoch.size, epoch.root)}",
            "another coordinator uses this key, this database is an old copy, or seats took over while this was away",
        )
    epoch.transaction_hash, epoch.block = event.transaction_hash, event.block
    epoch.beacon_block = arguments["beacon_block"]


def _epoch_sealed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    session.get_one(Epoch, arguments["epoch"]).beacon_hash = arguments["beacon_hash"]


def _epoch_rearmed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    session.get_one(Epoch, arguments["epoch"]).beacon_block = arguments["beacon_block"]


def _earnings_committed(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    earnings = session.get(Earnings, arguments["epoch"])
    if earnings is not None and earnings.root == arguments["root"]:
        earnings.transaction_hash = event.transaction_hash
        earnings.claimable_time = arguments["claimable_time"]


def _earnings_revoked(session: Session, event: ChainEvent, arguments: Arguments) -> None:
    """A jury found the root false: it isn't on chain any more, and the next statement overtakes it."""
    earnings = session.get(Earnings, arguments["epoch"])
    if earnings is not None:
        earnings.transaction_hash, earnings.claimable_time = None, None


def _pool(session: Session, arguments: Arguments) -> Pool:
    return session.get_one(Pool, arguments["pool_id"])


def _allotment(session: Session, arguments: Arguments) -> Allotment:
    key = (arguments["node"], arguments["pool_id"])
    allotment = session.get(Allotment, key)
    if allotment is None:
        allotment = Allotment(node=key[0], pool_id=key[1], amount_wei=0, held_wei=0)
        session.add(allotment)
    return allotment


def _bond(session: Session, arguments: Arguments) -> CoordinatorBond:
    key = (arguments["pool_id"], arguments["coordinator"])
    bond = session.get(CoordinatorBond, key)
    if bond is None:
        bond = CoordinatorBond(pool_id=key[0], coordinator=key[1], amount_wei=0)
        session.add(bond)
    return bond


def _version(session: Session, arguments: Arguments) -> Version:
    return session.get_one(Version, (arguments["pool_id"], arguments["version"]))


_HANDLERS: dict[str, Callable[[Session, ChainEvent, Arguments], None]] = {
    "PoolCreated": _pool_created,
    "Funded": _funded,
    "PoolRefunded": _pool_refunded,
    "Paused": _paused,
    "PoolClosing": _pool_closing,
    "KeyChanged": _key_changed,
    "CoordinatorBonded": _coordinator_bonded,
    "CoordinatorUnbonded": _bond_lowered,
    "CoordinatorSlashed": _bond_lowered,
    "NodeAdded": _node_added,
    "NodeRemoved": _node_removed,
    "Allotted": _allotted,
    "Deallotted": _deallotted,
    "AllotmentHeld": _allotment_held,
    "AllotmentFreed": _allotment_freed,
    "Slashed": _slashed,
    "SeatBonded": _seat_bonded,
    "SeatReleased": _seat_released,
    "SeatWithdrawn": _seat_released,
    "WeightsPublished": _weights_published,
    "VersionSealed": _version_sealed,
    "VersionRearmed": _version_rearmed,
    "EpochCommitted": _epoch_committed,
    "EpochSealed": _epoch_sealed,
    "EpochRearmed": _epoch_rearmed,
    "EarningsCommitted": _earnings_committed,
    "EarningsRevoked": _earnings_revoked,
}
