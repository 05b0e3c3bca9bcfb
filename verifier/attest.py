"""Earnings, recomputed from the log and signed for only where the coordinator got the same.

In: a proposed `EarningsStatement` and the checked log. Out: an `EarningsAttestation` for each own seat, or
VerificationFailed: a root that one can't recompute gets no signature.
"""

from __future__ import annotations

import sqlite3

from protocol.api import EarningsStatement
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer, SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import EarningsAttestation, Signed
from verifier.chain import PoolChain
from verifier.history import History
from verifier.payments import Payments
from verifier.prices import PriceChain, wrong_prices
from verifier.reaudits import Beacons, Reaudits, undue_reaudits

SCHEMA = """
CREATE TABLE IF NOT EXISTS attested (epoch INTEGER PRIMARY KEY) STRICT;
"""


def can_attest(statement: EarningsStatement, history: History) -> bool:
    """Whether the checked log reaches to the statement's epoch."""
    return history.num_epochs > statement.epoch


def check_statement(statement: EarningsStatement, history: History, chain: PriceChain, attested_epoch: int) -> None:
    """Raises VerificationFailed unless root and total are what the log's payments add up to, and each is earned."""
    check_payments(statement.epoch, history.payments, chain, attested_epoch)
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


def check_payments(epoch: int, payments: Payments, chain: PriceChain, attested_epoch: int) -> None:
    """Raises VerificationFailed where the log pays for nothing, at other prices, or without the pool's quorum.

    Prices that were paid up to `attested_epoch` were looked at before.
    """
    if faults := payment_faults(epoch, payments, chain, attested_epoch):
        raise VerificationFailed(
            f"the log up to epoch {epoch} pays what isn't earned", "; ".join(faults), "don't sign; keep the log"
        )


def payment_faults(epoch: int, payments: Payments, chain: PriceChain, attested_epoch: int) -> list[str]:
    """What is wrong with the log's payments up to `epoch`, and with prices that were paid after `attested_epoch`."""
    faults = [f"log entry {fault.log_index}: {fault.detail}" for fault in payments.faults(epoch)]
    faults += wrong_prices(payments, chain, attested_epoch, epoch)
    quorum, wanted = payments.least_quorum(epoch), chain.record().accept_quorum
    if quorum is not None and quorum < wanted:
        faults.append(f"a submission is accepted by {quorum} verdicts, the quorum is {wanted}")
    return faults


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
        check_statement(statement, self._history, self._chain, self.attested_epoch)
        check_reaudits(statement.epoch, self._history.payments, self._chain, self.attested_epoch)
        check_withheld(statement.epoch, self._reaudits, self._chain)
        num_epochs = self._chain.num_epochs()
        for seat in self._chain.seats():
            if seat.validator == self._signer.address and seat.is_active(num_epochs):
                signed = attestation(statement, seat.index, self._signer, self._chain.domain)
                self._client.attest_earnings(signed)
        self._db.execute("INSERT INTO attested VALUES (?)", (statement.epoch,))
        get_logger().info("earnings.attested", epoch=statement.epoch, total_wei=str(statement.total_wei))
