"""Whether every wei is somewhere: what each contract holds is what it says it holds, and the pool's books balance.

In: the coordinator's rows, which name everybody that the chain is asked about. Out: views to ask, and what must hold of
their answers. `audit money` looks at the same from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.db.chain import Allotment, CoordinatorBond, Earnings, Pool, Seat
from coordinator.db.work import Account, Escrow, ReauditRow, SubmissionRow, TaskRow
from coordinator.earnings import earnings_id
from coordinator.standing import OPEN
from protocol.chain.contracts import Read
from tests.stateful.play import Play
from verifier.audit.reports.money import audit_money

Answer = Callable[[], Any]


class Reads:
    """Views that are asked together."""

    def __init__(self, asked: Sequence[Read] = ()) -> None:
        self.asked = list(asked)
        self.found: list[Any] = []

    def ask(self, contract: str, function: str, *arguments: Any) -> Answer:
        """What gives the answer, once it is there."""
        place = len(self.asked)
        self.asked.append(Read(contract, function, arguments))
        return lambda: self.found[place]


class Books:
    """All sums at one block.

    Example: `books = Books(session, reads, play)`, `reads.found = …`, `books.check()`.
    """

    def __init__(self, session: Session, reads: Reads, play: Play) -> None:
        pool_id, addresses, ask = play.world.pool_id, play.world.contracts.addresses, reads.ask
        self.accounts = {row.address: row.cumulative_wei for row in session.scalars(select(Account))}
        self.funded_wei = session.get_one(Pool, pool_id).funded_wei
        self.may_have_lapsed = play.may_have_lapsed
        self._check_escrow(session, pool_id)
        names = ("registry", "pools", "ledger", "court", "jury")
        self.held = {name: ask("credits", "balanceOf", getattr(addresses, name)) for name in names}
        self.free = [ask("registry", "freeStake", signer.address) for signer in play.stakers]
        nodes = session.scalars(select(Allotment.node)).all()
        self.allotments = [ask("registry", "allotmentOf", node, pool_id) for node in nodes]
        self.seats = [ask("registry", "seatOf", pool_id, seat) for seat in session.scalars(select(Seat.seat))]
        keys = session.scalars(select(CoordinatorBond.coordinator)).all()
        self.bonds = [ask("pools", "bondOf", pool_id, key) for key in keys]
        submissions = session.scalars(select(SubmissionRow.submission_id)).all()
        self.cases = [ask("court", "bondOf", submission_id) for submission_id in submissions]
        epochs = session.scalars(select(Earnings.epoch)).all()
        self.disputes = [ask("jury", "disputeOf", earnings_id(pool_id, epoch)) for epoch in epochs]
        self.claims = {account: ask("ledger", "claimed", pool_id, account) for account in self.accounts}
        self.pool, self.newest = ask("pools", "poolOf", pool_id), ask("ledger", "newestEarnings", pool_id)
        self.proven = ask("ledger", "provenTotal", pool_id)

    def check(self) -> None:
        """Raises AssertionError where a contract holds more or less than it owes, or the pool's sums don't fit."""
        allotments, held = [one() for one in self.allotments], {name: one() for name, one in self.held.items()}
        pool, (_, newest) = self.pool(), self.newest()
        staked = sum(one() for one in self.free) + sum(one["amount"] + one["unbonding"] for one in allotments)
        assert held == {
            "registry": staked + sum(one()["bond"] for one in self.seats),
            "pools": pool["pool_funds"] + sum(one()["amount"] for one in self.bonds),
            "ledger": 0,
            "court": sum(one()["amount"] for one in self.cases),
            "jury": sum(one()["bond"] for one in self.disputes),
        }
        assert all(one["held"] <= one["amount"] + one["unbonding"] for one in allotments)
        claims = {account: one() for account, one in self.claims.items()}
        assert pool["paid"] == sum(claims.values())
        assert self.funded_wei == pool["pool_funds"] + pool["paid"]
        overpaid = {account: wei for account, wei in claims.items() if wei > self.accounts[account]}
        assert not overpaid, f"more than was earned: {overpaid} of {self.accounts}"
        assert self.proven() == newest["total"] <= sum(self.accounts.values())
        assert self.proven() <= self.funded_wei or self.may_have_lapsed, "what is proven isn't there any more"

    def _check_escrow(self, session: Session, pool_id: int) -> None:
        """Off chain: what is earned is somebody's, and what is reserved is for open work."""
        escrow = session.get(Escrow, pool_id)
        tasks = session.scalars(select(TaskRow.reserved_wei).where(TaskRow.standing.in_(OPEN))).all()
        reaudits = session.scalars(select(ReauditRow.reserved_wei)).all()
        kept = (escrow.earned_wei, escrow.reserved_wei) if escrow else (0, 0)
        assert kept == (sum(self.accounts.values()), sum(tasks) + sum(reaudits))


def check_audit(play: Play) -> None:
    """What `proofpool audit money` says."""
    world = play.world
    report = audit_money(world.client(), world.contracts, world.client().pool())
    assert report.result == "ok", list(report.lines())
