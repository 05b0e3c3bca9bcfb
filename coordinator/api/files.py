"""How files and pages are answered: immutable blobs with an ETag, lists with a link to the next page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request, Response, status
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from coordinator.api.dependencies import Page
from coordinator.blobs import BlobStore
from protocol.client import PARQUET
from protocol.errors import NotFound

FOREVER = "public, max-age=31536000, immutable"
PARQUET_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {PARQUET: {"schema": {"type": "string", "format": "binary"}}}}
}

T = TypeVar("T")


class BlobFile(FileResponse):
    """A file whose refused ranges end as every other refusal does: in a problem document."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def refusing(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                raise HTTPException(message["status"], "the Range header can't be followed")
            await send(message)

        await super().__call__(scope, receive, refusing)


def blob_response(request: Request, blobs: BlobStore, blob_hash: str) -> Response:
    """The blob, or 304 for a client that has it. Raises NotFound."""
    headers = {"ETag": f'"{blob_hash}"', "Cache-Control": FOREVER}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    path = blobs.path(blob_hash)
    if not path.exists():
        raise NotFound("the file isn't kept any more", blob_hash, "ask another copy of the pool's archive")
    return BlobFile(path, media_type=PARQUET, headers=headers)


def page_response(request: Request, response: Response, page: Page, rows: list[T], key: Callable[[T], int]) -> list[T]:
    """The rows; a full page has a `Link: <…>; rel="next"` header."""
    if len(rows) == page.limit:
        link_next(request, response, after=key(rows[-1]))
    return rows


def link_next(request: Request, response: Response, **start: int) -> None:
    """Say where the list goes on."""
    following = request.url.include_query_params(**start)
    response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
