"""Earnings, recomputed from the log and signed for only where the coordinator got the same.

In: a proposed `EarningsStatement` and the checked log. Out: an `EarningsAttestation` for each own seat, or
VerificationFailed: a root that one can't recompute gets no signature.
"""

from __future__ import annotations

from protocol.api import EarningsStatement
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer, SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import EarningsAttestation, Signed
from verifier.chain import PoolChain
from verifier.history import History


def can_attest(statement: EarningsStatement, history: History) -> bool:
    """Whether the checked log reaches to the statement's epoch."""
    return history.num_epochs > statement.epoch


def check_statement(statement: EarningsStatement, history: History) -> None:
    """Raises VerificationFailed unless root and total are what the log's payments add up to."""
    earned = {account: amount for account, amount in history.earnings(statement.epoch).items() if amount}
    root = earnings_tree(earned).root if earned else None
    if (statement.root, statement.total_wei) != (root, sum(earned.values())):
        raise VerificationFailed(
            f"the earnings proposed for epoch {statement.epoch} aren't those of the log",
            f"root {statement.root} over {statement.total_wei}, recomputed {root} over {sum(earned.values())}",
            "don't sign; compare the statement with `proofpool audit`",
        )


def attestation(
    statement: EarningsStatement, seat: int, history: History, signer: Signer, domain: SigningDomain
) -> Signed[EarningsAttestation]:
    """This seat's signature under a statement that holds."""
    check_statement(statement, history)
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

    def __init__(self, signer: Signer, chain: PoolChain, client: CoordinatorClient, history: History) -> None:
        self._signer = signer
        self._chain = chain
        self._client = client
        self._history = history
        self._attested_epoch = -1
        """Newest statement that was signed for; after a restart the newest is signed again, which is the same."""

    def turn(self) -> None:
        """Attest the newest statement, if it is new. Raises VerificationFailed where it doesn't hold."""
        statement = self._client.newest_earnings()
        if statement is None or statement.epoch <= self._attested_epoch or not can_attest(statement, self._history):
            return
        num_epochs = self._chain.num_epochs()
        for seat in self._chain.seats():
            if seat.validator == self._signer.address and seat.is_active(num_epochs):
                signed = attestation(statement, seat.index, self._history, self._signer, self._chain.domain)
                self._client.attest_earnings(signed)
        self._attested_epoch = statement.epoch
        get_logger().info("earnings.attested", epoch=statement.epoch, total_wei=str(statement.total_wei))
