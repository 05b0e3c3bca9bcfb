"""Earnings, recomputed from the log and signed for only where the coordinator got the same.

In: a proposed `EarningsStatement` and the checked log. Out: an `EarningsAttestation` for each own seat, or
VerificationFailed: a root that one can't recompute gets no signature.
"""

from __future__ import annotations

from protocol.api import EarningsStatement
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer, SigningDomain
from protocol.wire import EarningsAttestation, Signed
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


def attest(
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
