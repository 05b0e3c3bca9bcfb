"""/v1/earnings and /v1/attestations: statements of who has earned what, and the seats' signatures under them."""

from __future__ import annotations

from fastapi import APIRouter, Response, status

from coordinator import earnings
from coordinator.api.dependencies import CoordinatorOf
from protocol.api import EarningsStatement
from protocol.wire import EarningsAttestation, Signed, UInt64

router = APIRouter(tags=["earnings"])


@router.get("/earnings", response_model=EarningsStatement, responses={204: {"description": "nothing proposed yet"}})
def newest_earnings(coordinator: CoordinatorOf) -> EarningsStatement | Response:
    """The newest statement, on chain or waiting for attestations."""
    with coordinator.reading() as session:
        found = earnings.newest_statement(session, coordinator.config.pool_id)
    return found or Response(status_code=status.HTTP_204_NO_CONTENT)


@router.get("/earnings/{epoch}")
def get_earnings(coordinator: CoordinatorOf, epoch: UInt64) -> EarningsStatement:
    """The statement for one epoch."""
    with coordinator.reading() as session:
        return earnings.earnings_statement(session, coordinator.config.pool_id, epoch)


@router.post("/attestations", status_code=status.HTTP_204_NO_CONTENT)
def attest_earnings(coordinator: CoordinatorOf, attestation: Signed[EarningsAttestation]) -> None:
    """A seat recomputed a statement; the attestation itself carries its validator's signature."""
    earnings.attest_earnings(coordinator, attestation)
