"""An earnings root that isn't true is brought before a jury, by anybody with a bond.

    root on chain ─▶ recomputed from the log ─▶ disputed ─▶ the seats that signed it are named

In: an epoch, the coordinator's log, the chain, an account with credits. Out: `DisputeReport`. Asked again it goes on
from where it stopped: a root is disputed once, and seats that aren't named yet are named.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.client import CoordinatorClient
from protocol.errors import NotEligible, NotFound, TransactionReverted, VerificationFailed
from protocol.telemetry import get_logger
from protocol.wire import ZERO_HASH, Address, EarningsAttestation, Hash32, Signed, UInt64, Wei
from verifier.audit.court.attesters import CommittedRoot, attestations_of
from verifier.history import History
from verifier.roots import root_faults
from verifier.takeover import follow

NEVER = 2**64 - 1
"""When roots become claimable while a dispute is open (Disputes.FOREVER)."""
OUT_OF_REACH = ("AlreadyImplicated", "AttestersFull", "SeatWithoutBond")
"""Refusals that say the seat is named already, or has nothing to lose, or the dispute takes no more."""


class DisputeReport(BaseModel):
    """The dispute as the chain has it now. `faults` is empty where this call found none to look for.

    `coordinator` is whose bond answers too, the zero address where nobody's does.
    """

    model_config = ConfigDict(frozen=True)
    epoch: UInt64
    dispute_id: Hash32
    root: Hash32
    total_wei: Wei
    disputer: Address
    bond_wei: Wei
    coordinator: Address
    faults: tuple[str, ...]
    named_seats: tuple[int, ...]
    jury_deadline: UInt64
    todo: str


@dataclass(frozen=True)
class Disputer:
    """Somebody with an account and a coordinator's log to recompute; `client` None trusts what was found elsewhere."""

    contracts: Contracts
    lane: Lane
    pool_id: int
    client: CoordinatorClient | None

    def dispute(self, epoch: int) -> DisputeReport:
        """Raises NotFound, NotEligible, VerificationFailed where the root is true, TransactionReverted."""
        pool = ChainPool(self.contracts, self.pool_id, lane=self.lane)
        found, claimable_time = self._root(epoch)
        dispute_id, faults = pool.earnings_id(epoch), list[str]()
        # Before the dispute: jurors are drawn two blocks after it, and who is named by then doesn't sit.
        attestations = attestations_of(pool, found)
        if pool.dispute_of(dispute_id) is None:
            self._check_eligible(pool, claimable_time)
            faults = [] if self.client is None else self._faults(self.client, pool, found)
            pool.dispute_earnings(epoch)
        _name(pool, dispute_id, attestations)
        return _report(pool, found, faults)

    def _root(self, epoch: int) -> tuple[CommittedRoot, int]:
        """What the chain has, and when it could be claimed were there no disputes.

        Raises NotFound, TransactionReverted for a pool that was never made.
        """
        found = self.contracts.read("ledger", "earningsOf", self.pool_id, epoch)
        if found["root"] == ZERO_HASH:
            self.contracts.read("pools", "configOf", self.pool_id)
            newest, _ = self.contracts.read("ledger", "newestEarnings", self.pool_id)
            raise NotFound("no earnings are committed for this epoch", f"epoch {epoch}", f"the newest are of {newest}")
        return CommittedRoot(epoch, found["root"], found["total"]), found["claimable_time"]

    def _check_eligible(self, pool: ChainPool, claimable_time: int) -> None:
        """Raises NotEligible for what the Jury would refuse, before the log is read for nothing."""
        deadline, now = self.contracts.read("jury", "claimableTime", self.pool_id, claimable_time), pool.time()
        if deadline == NEVER:
            why = "one dispute a pool, which holds all its roots"
            raise NotEligible("another root of the pool is disputed", why, "run this again when that is over")
        if now >= deadline:
            why = f"it could be disputed until chain time {deadline}, {now - deadline} s ago"
            raise NotEligible("it is too late to dispute this root", why, "nothing can be done any more")
        bond_wei = pool.jury_terms().challenge_bond_wei
        balance_wei = self.contracts.read("credits", "balanceOf", self.lane.address)
        if balance_wei < bond_wei:
            why = f"{balance_wei} of {bond_wei} wei, until chain time {deadline}"
            raise NotEligible("a dispute takes a bond", why, f"send credits to {self.lane.address}")

    def _faults(self, client: CoordinatorClient, pool: ChainPool, found: CommittedRoot) -> list[str]:
        """What is wrong with the root. Raises VerificationFailed where nothing is, or the log can't be had."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            history = History(db)
            follow(history, pool, client.entries)
            faults = root_faults(found.epoch, found.root, found.total_wei, history, pool)
        if faults:
            return faults
        raise VerificationFailed(
            "this machine finds the root true",
            f"{found.total_wei} wei up to epoch {found.epoch} under {found.root}, as the log says",
            "a false dispute costs its bond; --without-check for what was recomputed elsewhere",
        )


def _name(pool: ChainPool, dispute_id: str, attestations: Sequence[Signed[EarningsAttestation]]) -> None:
    """Have every seat that signed the root, and isn't named yet, answer for that."""
    dispute = pool.dispute_of(dispute_id)
    known = () if dispute is None else dispute.attesters
    for signed in attestations:
        if signed.message.seat in known:
            continue
        try:
            pool.implicate_attester(signed.message.epoch, signed.message.seat, signed.signature)
        except TransactionReverted as error:
            if error.name not in OUT_OF_REACH:
                raise
            get_logger().info("seat.not_implicated", dispute_id=dispute_id, seat=signed.message.seat, why=error.name)


def _report(pool: ChainPool, found: CommittedRoot, faults: Sequence[str]) -> DisputeReport:
    dispute_id = pool.earnings_id(found.epoch)
    dispute, jury = pool.dispute_of(dispute_id), pool.jury_of(dispute_id)
    if dispute is None or jury is None:
        raise NotFound("the dispute is over already", dispute_id, "`proofpool audit money` shows what the chain has")
    return DisputeReport(
        epoch=found.epoch,
        dispute_id=dispute_id,
        root=found.root,
        total_wei=found.total_wei,
        disputer=dispute.disputer,
        bond_wei=dispute.bond_wei,
        coordinator=dispute.coordinator,
        faults=tuple(faults),
        named_seats=dispute.attesters,
        jury_deadline=jury.deadline,
        todo=f"a jury recomputes the root, or the dispute lapses at chain time {jury.deadline}",
    )
