"""Earnings, recomputed from the log and signed for only where the coordinator got the same.

In: a proposed `EarningsStatement` and the checked log. Out: an `EarningsAttestation` for each own seat, or
VerificationFailed: a root that one can't recompute gets no signature.
"""

from __future__ import annotations

import sqlite3

from protocol.api import EarningsStatement
from protocol.chain.cases import DisputeRecord, Vote
from protocol.chain.pool import PoolRecord
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer, SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import EarningsAttestation, Signed
from verifier.chain import PoolChain
from verifier.history import History
from verifier.payments import PROVIDER, VALIDATOR, Payments
from verifier.reaudits import Beacons, Reaudits, undue_reaudits

SCHEMA = """
CREATE TABLE IF NOT EXISTS attested (epoch INTEGER PRIMARY KEY) STRICT;
"""


def can_attest(statement: EarningsStatement, history: History) -> bool:
    """Whether the checked log reaches to the statement's epoch."""
    return history.num_epochs > statement.epoch


def check_statement(statement: EarningsStatement, history: History, record: PoolRecord, attested_epoch: int) -> None:
    """Raises VerificationFailed unless root and total are what the log's payments add up to, and each is earned."""
    check_payments(statement.epoch, history.payments, record, attested_epoch)
    root, total_wei = recomputed(statement.epoch, history)
    if (statement.root, statement.total_wei) != (root, total_wei):
        raise VerificationFailed(
            f"the earnings proposed for epoch {statement.epoch} aren't those of the log",
            f"root {statement.root} over {statement.total_wei}, recomputed {root} over {total_wei}",
            "don't sign; compare the statement with `proofpool audit`",
        )


def recomputed(epoch: int, history: History) -> tuple[str | None, int]:
    """Root and total of what the checked log pays up to `epoch`; no root where it pays nobody."""
    earned = {account: amount for account, amount in history.payments.earnings(epoch).items() if amount}
    return earnings_tree(earned).root if earned else None, sum(earned.values())


def judge_root(dispute: DisputeRecord, history: History) -> Vote:
    """What a juror says of a disputed root: it stands if the log adds up to it and pays nothing that isn't earned.

    Raises VerificationFailed while the checked log doesn't reach so far.
    """
    if history.num_epochs <= dispute.epoch:
        raise VerificationFailed("the checked log doesn't reach a disputed root", f"epoch {dispute.epoch}")
    adds_up = recomputed(dispute.epoch, history) == (dispute.root, dispute.total_wei)
    return Vote.OVERTURN if adds_up and not history.payments.faults(dispute.epoch) else Vote.UPHOLD


def check_payments(epoch: int, payments: Payments, record: PoolRecord, attested_epoch: int) -> None:
    """Raises VerificationFailed where the log pays for nothing, at other prices, or without the pool's quorum.

    Prices that were paid up to `attested_epoch` were held against the terms of their time.
    """
    faults = [f"log entry {fault.log_index}: {fault.detail}" for fault in payments.faults(epoch)]
    terms = {PROVIDER: record.prices_wei, VALIDATOR: record.verify_prices_wei}
    faults += [
        f"a {price.earner} is paid {price.price_wei} for a unit, the pool's terms are {sorted(terms[price.earner])}"
        for price in payments.unit_prices(attested_epoch, epoch)
        if price.price_wei not in terms[price.earner]
    ]
    quorum = payments.least_quorum(epoch)
    if quorum is not None and quorum < record.accept_quorum:
        faults.append(f"a submission is accepted by {quorum} verdicts, the quorum is {record.accept_quorum}")
    if faults:
        raise VerificationFailed(
            f"the log up to epoch {epoch} pays what isn't earned", "; ".join(faults), "don't sign; keep the log"
        )


def check_reaudits(epoch: int, payments: Payments, chain: Beacons, attested_epoch: int) -> None:
    """Raises VerificationFailed where the log closes re-audits that no beacon picked: they pay whom it pleases."""
    if faults := undue_reaudits(payments, chain, attested_epoch, epoch):
        raise VerificationFailed(
            f"the log up to epoch {epoch} re-audits what it pleases", "; ".join(faults), "don't sign; keep the log"
        )


def check_withheld(epoch: int, reaudits: Reaudits, chain: Beacons) -> None:
    """Raises VerificationFailed while due re-audits of what was settled up to `epoch` aren't drawn."""
    if faults := reaudits.withheld(chain, epoch):
        raise VerificationFailed(
            f"the log up to epoch {epoch} withholds re-audits",
            "; ".join(faults[:10]),
            "don't sign until they are drawn",
        )


def attestation(
    statement: EarningsStatement, seat: int, signer: Signer, domain: SigningDomain
) -> Signed[EarningsAttestation]:
    """A seat's signature under a statement that was checked."""
    message = EarningsAttestation(
        pool_id=statement.pool_id,
        epoch=statement.epoch,
        root=statement.root,
        total_wei=statement.total_wei,
        seat=seat,
    )
    return Signed[EarningsAttestation].by(signer, message, domain)


class Attester:
    """Signs for each newly proposed statement once, with every seat that this validator holds."""

    def __init__(
        self,
        db: sqlite3.Connection,
        signer: Signer,
        chain: PoolChain,
        client: CoordinatorClient,
        history: History,
        reaudits: Reaudits,
    ) -> None:
        self._db = db
        self._signer = signer
        self._chain = chain
        self._client = client
        self._history = history
        self._reaudits = reaudits
        db.executescript(SCHEMA)

    @property
    def attested_epoch(self) -> int:
        """Of the newest statement that was signed for; -1 before the first."""
        return int(self._db.execute("SELECT COALESCE(MAX(epoch), -1) FROM attested").fetchone()[0])

    def turn(self) -> None:
        """Attest the newest statement, if it is new. Raises VerificationFailed where it doesn't hold."""
        statement = self._client.newest_earnings()
        if statement is None or statement.epoch <= self.attested_epoch or not can_attest(statement, self._history):
            return
        check_statement(statement, self._history, self._chain.record(), self.attested_epoch)
        check_reaudits(statement.epoch, self._history.payments, self._chain, self.attested_epoch)
        check_withheld(statement.epoch, self._reaudits, self._chain)
        num_epochs = self._chain.num_epochs()
        for seat in self._chain.seats():
            if seat.validator == self._signer.address and seat.is_active(num_epochs):
                signed = attestation(statement, seat.index, self._signer, self._chain.domain)
                self._client.attest_earnings(signed)
        self._db.execute("INSERT INTO attested VALUES (?)", (statement.epoch,))
        get_logger().info("earnings.attested", epoch=statement.epoch, total_wei=str(statement.total_wei))
