"""/v1/batches: the trainer leases a step's batch, fetches its file, and acknowledges it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response, status
from fastapi.responses import JSONResponse

from coordinator import batch_refusal, batches
from coordinator.api.dependencies import CoordinatorOf, PageOf, SignedBy
from coordinator.api.files import blob_response, page_response
from coordinator.context import Coordinator
from coordinator.pool import pool_record
from protocol.api import BatchOffer, BatchRefusal
from protocol.errors import NotEligible
from protocol.http import Caller
from protocol.wire import UInt64

router = APIRouter(tags=["batches"])


@router.post("/batches", response_model=BatchOffer, responses={204: {"description": "too few accepted groups yet"}})
def lease_batch(coordinator: CoordinatorOf, caller: SignedBy, step: Annotated[UInt64, Query(ge=1)]) -> Response:
    """The batch of optimizer step `step`; the same one until it is acknowledged."""
    _check_trainer(coordinator, caller)
    offer = batches.lease_batch(coordinator, step)
    if offer is None:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    return JSONResponse(offer.model_dump(mode="json"))


@router.get("/batches")
def list_batches(coordinator: CoordinatorOf, request: Request, response: Response, page: PageOf) -> list[BatchOffer]:
    """Batches by number."""
    with coordinator.reading() as session:
        offers = batches.batch_page(session, page.after, page.limit)
    return page_response(request, response, page, offers, lambda offer: offer.number)


@router.get("/batches/{number}/file", response_class=Response)
def get_batch_file(coordinator: CoordinatorOf, request: Request, number: UInt64) -> Response:
    """Exactly the rows of the batch's groups, in its order."""
    with coordinator.reading() as session:
        blob_hash = batches.batch_row(session, number).file_sha256
    return blob_response(request, coordinator.blobs, blob_hash)


@router.post("/batches/{number}/acknowledgement", status_code=status.HTTP_204_NO_CONTENT)
def acknowledge_batch(coordinator: CoordinatorOf, caller: SignedBy, number: UInt64) -> None:
    """The step is durably taken: the groups are consumed. Repeating it changes nothing."""
    _check_trainer(coordinator, caller)
    batches.acknowledge_batch(coordinator, number)


@router.post("/batches/{number}/refusal", status_code=status.HTTP_204_NO_CONTENT)
def refuse_batch(coordinator: CoordinatorOf, caller: SignedBy, number: UInt64, refusal: BatchRefusal) -> None:
    """A row of one submission would poison the weights: its groups are unused, the others pending again."""
    _check_trainer(coordinator, caller)
    batch_refusal.refuse_batch(coordinator, number, refusal)


def _check_trainer(coordinator: Coordinator, caller: Caller) -> None:
    with coordinator.reading() as session:
        trainer = pool_record(session, coordinator.config.pool_id).trainer
    if caller.address != trainer:
        raise NotEligible("only the pool's trainer takes batches", f"signed by {caller.address}, not {trainer}")
