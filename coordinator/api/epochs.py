"""/v1/epochs: the log's heads, and where the chain has them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from coordinator import epochs
from coordinator.api.dependencies import CoordinatorOf, PageOf
from coordinator.api.files import page_response
from protocol.api import EpochView

router = APIRouter(tags=["epochs"])


@router.get("/epochs")
def list_epochs(coordinator: CoordinatorOf, request: Request, response: Response, page: PageOf) -> list[EpochView]:
    """Closed epochs by number; `transaction` and `block` once the commit is indexed."""
    with coordinator.reading() as session:
        views = epochs.epoch_views(session, page.after, page.limit)
    return page_response(request, response, page, views, lambda view: view.epoch)
