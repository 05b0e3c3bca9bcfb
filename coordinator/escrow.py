"""The pool's funds off chain: what open work reserves, and what is earned.

In: the `Pool` mirror (what was funded) and amounts in base units. Out: `Escrow` and `Account` rows.
Reserved plus earned never exceeds what was funded: an empty pool leases nothing.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from coordinator.db.chain import Pool
from coordinator.db.work import Account, Escrow


def reservation_wei(pool: Pool, max_units: int) -> int:
    """What one task may cost: its provider, and every seat that may be drawn for it."""
    return max_units * (pool.price_wei + pool.draw_limit * pool.verify_price_wei)


def free_wei(session: Session, pool: Pool) -> int:
    """What nobody has earned and no open task reserves."""
    escrow = _escrow(session, pool.pool_id)
    return pool.funded_wei - escrow.reserved_wei - escrow.earned_wei


def can_reserve(session: Session, pool: Pool, amount_wei: int) -> bool:
    return amount_wei <= free_wei(session, pool)


def reserve(session: Session, pool_id: int, amount_wei: int) -> None:
    _escrow(session, pool_id).reserved_wei += amount_wei


def release(session: Session, pool_id: int, amount_wei: int) -> None:
    _escrow(session, pool_id).reserved_wei -= amount_wei


def pay(session: Session, pool_id: int, address: str, amount_wei: int) -> None:
    """Add to an account; earnings are gross and only grow."""
    account = session.get(Account, address)
    if account is None:
        account = Account(address=address, cumulative_wei=0)
        session.add(account)
    account.cumulative_wei += amount_wei
    _escrow(session, pool_id).earned_wei += amount_wei


def _escrow(session: Session, pool_id: int) -> Escrow:
    escrow = session.get(Escrow, pool_id)
    if escrow is None:
        escrow = Escrow(pool_id=pool_id, reserved_wei=0, earned_wei=0)
        session.add(escrow)
        session.flush()
    return escrow
