"""What endpoints ask for: the coordinator, who signed the request, a page of a list.

In: a request whose body `BodyLimit` has read. Out: `CoordinatorOf`, `SignedBy`, `Page` as parameter types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Request

from coordinator.api.body import BODY_HASH
from coordinator.context import Coordinator
from protocol.canonical import MAX_SAFE_INTEGER
from protocol.http import Caller, verify_request

MAX_PAGE = 1000


async def coordinator_of(request: Request) -> Coordinator:
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator


CoordinatorOf = Annotated[Coordinator, Depends(coordinator_of)]


async def signed_by(request: Request, coordinator: CoordinatorOf) -> Caller:
    """Who signed this request. Raises SignatureInvalid where nobody did."""
    scope = request.scope
    return verify_request(
        request.headers.get("authorization"),
        method=request.method,
        host=request.headers.get("host", ""),
        path=scope["raw_path"].partition(b"?")[0].decode("ascii", "replace"),
        query=scope["query_string"].decode("ascii", "replace"),
        body_hash=scope[BODY_HASH],
        domain=coordinator.domain,
        now=coordinator.clock.now(),
        hosts=request.app.state.hosts,
    )


SignedBy = Annotated[Caller, Depends(signed_by)]


@dataclass(frozen=True)
class Page:
    """A stretch of a list: rows past the key `after`, at most `limit` of them."""

    after: int
    limit: int


async def page_of(
    after: Annotated[int, Query(ge=-1, le=MAX_SAFE_INTEGER, description="the key of the last row already seen")] = -1,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Page:
    return Page(after, limit)


PageOf = Annotated[Page, Depends(page_of)]
