"""Stage propose_earnings: who has earned what, as a root that seats attest and the chain keeps.

    payments in the log ─▶ statement ─▶ earnings.proposed ─▶ attestations ─▶ commitEarnings ─▶ claims

In: the `payments` of settled work, as the log has them up to an epoch. Out: an `Earnings` row with the root of
OpenZeppelin's StandardMerkleTree over (account, cumulative gross), the seats' signatures, and the commit in the outbox.
Nothing here comes from the accounts' table: anybody can recompute a statement from the log alone.
"""

from __future__ import annotations

import json

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import Earnings, Epoch, Pool, Seat
from coordinator.db.log import Event
from coordinator.draws import seats_at
from coordinator.log import append
from coordinator.outbox import queue_call
from coordinator.pool import chain_time, pool_record
from protocol.api import EarningsStatement, ProviderEarnings
from protocol.canonical import JsonValue, hex0x, keccak256
from protocol.chain.contracts import encode
from protocol.draw import DrawnSeat, draw_seats
from protocol.errors import NotFound, VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.wire import EarningsAttestation, Signed

PROPOSED = "earnings.proposed"
SETTLING = ("submission.accepted", "submission.rejected", "reaudit.agreed", "reaudit.disagreed")
"""The events that pay."""
ATTESTATION_ROUND = 0
PATIENCE = 4
"""How many times longer a statement waits that isn't on chain yet."""


def earnings_id(pool_id: int, epoch: int) -> str:
    """What attesting seats are drawn for; the same as `Ledger.earningsId`."""
    return hex0x(keccak256(b"earnings".ljust(32, b"\0") + pool_id.to_bytes(32, "big") + epoch.to_bytes(32, "big")))


def cumulative_payments(session: Session, epoch: Epoch, base: Earnings | None, base_size: int) -> dict[str, int]:
    """Gross earnings by account over the log up to `epoch`, from an earlier statement over `base_size` leaves on."""
    totals = {account: int(amount) for account, amount in base.accounts} if base is not None else {}
    documents = session.scalars(
        select(Event.document)
        .where(Event.index >= base_size, Event.index < epoch.size, Event.type.in_(SETTLING))
        .order_by(Event.index)
    )
    for document in documents:
        for account, amount in json.loads(document)["data"]["payments"]:
            totals[account] = totals.get(account, 0) + int(amount)
    return {account: amount for account, amount in sorted(totals.items()) if amount}


def can_propose(newest: Earnings | None, epoch: Epoch | None, every_epochs: int) -> bool:
    """Whether it is time: `every_epochs` after the last statement; longer while that one waits for its seats.

    A statement whose seats stay silent is overtaken in the end: the next one says all that it said.
    """
    if epoch is None or newest is None:
        return epoch is not None
    patience = 1 if newest.transaction_hash is not None else PATIENCE
    return epoch.epoch >= newest.epoch + patience * every_epochs


def propose_earnings(coordinator: Coordinator) -> None:
    """Propose a statement where one is due and says something new, for the newest epoch that has its beacon."""
    every = coordinator.config.epochs_per_earnings
    with coordinator.reading() as session:
        if not can_propose(_newest(session), _newest_sealed_epoch(session), every):
            return
    with coordinator.writing() as session:
        newest, epoch = _newest(session), _newest_sealed_epoch(session)
        if epoch is not None and can_propose(newest, epoch, every):
            _propose(session, epoch, newest)


def earnings_statement(session: Session, pool_id: int, epoch: int) -> EarningsStatement:
    """The statement for `epoch`. Raises NotFound where none was proposed for it."""
    row = session.get(Earnings, epoch)
    if row is None:
        raise NotFound("no earnings were proposed for this epoch", f"epoch {epoch}", "GET /v1/earnings has the newest")
    return _statement(pool_id, row)


def newest_statement(session: Session, pool_id: int) -> EarningsStatement | None:
    row = _newest(session)
    return None if row is None else _statement(pool_id, row)


def attest_earnings(coordinator: Coordinator, attestation: Signed[EarningsAttestation]) -> None:
    """Keep a seat's signature; with enough drawn seats, queue the commit. Again is no change.

    Raises NotFound for an unknown statement or seat, VerificationFailed for another root, SignatureInvalid.
    """
    message = attestation.message
    with coordinator.writing() as session:
        row = session.get(Earnings, message.epoch)
        seat = session.get(Seat, (message.pool_id, message.seat))
        if row is None or seat is None:
            raise NotFound("no such statement or seat", f"epoch {message.epoch}, seat {message.seat}")
        attestation.check(seat.validator, coordinator.domain)
        if (message.root, message.total_wei) != (row.root, row.total_wei):
            raise VerificationFailed(
                "the attestation is for other earnings",
                f"{message.root} over {message.total_wei}, proposed {row.root} over {row.total_wei}",
            )
        row.signatures = {**row.signatures, str(message.seat): attestation.signature}
        _queue_commit(coordinator, session, row)


def are_earnings_committed(coordinator: Coordinator, epoch: int, block: int | str) -> bool:
    """Whether the chain has a root for this epoch or a later one as of a block: an earlier one is then refused."""
    newest, earnings = coordinator.chain.read("ledger", "newestEarnings", coordinator.config.pool_id, block=block)
    return bool(int(earnings["root"], 16)) and int(newest) >= epoch


def _propose(session: Session, epoch: Epoch, newest: Earnings | None) -> None:
    base_size = session.get_one(Epoch, newest.epoch).size if newest is not None else 0
    totals = cumulative_payments(session, epoch, newest, base_size)
    if not totals or (newest is not None and sum(totals.values()) == newest.total_wei):
        return
    row = Earnings(
        epoch=epoch.epoch,
        root=earnings_tree(totals).root,
        total_wei=sum(totals.values()),
        accounts=[[account, str(amount)] for account, amount in totals.items()],
        signatures={},
    )
    session.add(row)
    data: dict[str, JsonValue] = {"epoch": row.epoch, "total_wei": str(row.total_wei), "num_accounts": len(totals)}
    append(session, PROPOSED, row.root, chain_time(session), data)


def _queue_commit(coordinator: Coordinator, session: Session, row: Earnings) -> None:
    pool = pool_record(session, coordinator.config.pool_id)
    signed = [one for one in _drawn(session, pool, row.epoch) if str(one.seat.index) in row.signatures]
    if len(signed) < pool.accept_quorum:
        return
    call = encode(
        "ledger",
        "commitEarnings",
        pool.pool_id,
        row.epoch,
        row.root,
        row.total_wei,
        [one.draw_index for one in signed],
        [row.signatures[str(one.seat.index)] for one in signed],
    )
    queue_call(session, f"earnings:{row.epoch}", "ledger", call)


def _drawn(session: Session, pool: Pool, epoch: int) -> tuple[DrawnSeat, ...]:
    """The seats whose signatures the contract counts, in drawn order."""
    beacon = session.get_one(Epoch, epoch).beacon_hash
    if beacon is None:
        return ()
    return draw_seats(
        beacon,
        earnings_id(pool.pool_id, epoch),
        ATTESTATION_ROUND,
        seats_at(session, pool.pool_id, epoch),
        epoch,
        num_seats=pool.draw_limit,
    )


def _newest(session: Session) -> Earnings | None:
    return session.scalar(select(Earnings).order_by(Earnings.epoch.desc()).limit(1))


def _newest_sealed_epoch(session: Session) -> Epoch | None:
    return session.scalar(select(Epoch).where(Epoch.beacon_hash.is_not(None)).order_by(Epoch.epoch.desc()).limit(1))


def _statement(pool_id: int, row: Earnings) -> EarningsStatement:
    return EarningsStatement(
        pool_id=pool_id,
        epoch=row.epoch,
        root=row.root,
        total_wei=row.total_wei,
        accounts=tuple(
            ProviderEarnings(account=account, cumulative_wei=int(amount)) for account, amount in row.accounts
        ),
    )
