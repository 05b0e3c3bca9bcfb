"""Errors as RFC 9457 problem documents: what a refusal looks like to the one who is refused.

In: any exception that a request ends in. Out: `application/problem+json` with a `RejectReason` as code, a
hint, the measured value and its threshold; never a traceback.
"""

from __future__ import annotations

import http
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protocol.api import Problem
from protocol.errors import (
    NotEligible,
    NotFound,
    ProofpoolError,
    Rejected,
    SignatureInvalid,
    Unreachable,
    VerificationFailed,
)
from protocol.reasons import RejectReason
from protocol.telemetry import get_logger

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1
"""Of whatever isn't in `_RETRY_AFTER`."""
API_HINT = "docs/openapi.json lists every path with its methods"
DOCS = "https://proofpool.invalid/problems/"

_STATUS: dict[RejectReason, int] = {
    RejectReason.SCHEMA_INVALID: 422,
    RejectReason.SIGNATURE_INVALID: 401,
    RejectReason.NOT_REGISTERED: 403,
    RejectReason.UNDERSTAKED: 403,
    RejectReason.LEASE_UNKNOWN: 404,
    RejectReason.LEASE_LIMIT: 429,
    RejectReason.FILE_MISMATCH: 400,
    RejectReason.TOO_LARGE: 413,
    RejectReason.POOL_PAUSED: 503,
    RejectReason.POOL_CLOSED: 409,
    RejectReason.ESCROW_EMPTY: 503,
    RejectReason.RULES_CHANGED: 409,
    RejectReason.RATE_LIMITED: 429,
    RejectReason.NO_DEMAND: 429,
    RejectReason.FILE_MISSING: 404,
    RejectReason.RENEWAL_LIMIT: 409,
    RejectReason.REORGED: 409,
    RejectReason.STORAGE_FULL: 503,
    RejectReason.LEASE_EXPIRED: 409,
    RejectReason.DUPLICATE: 409,
    RejectReason.STALE_POLICY: 409,
}
"""Every other reason says that the content is wrong: 422."""

_RETRY = {429, 503}
_RETRY_AFTER: dict[str, int] = {
    RejectReason.LEASE_LIMIT.value: 2,
    RejectReason.NO_DEMAND.value: 2,
    RejectReason.POOL_PAUSED.value: 5,
    RejectReason.ESCROW_EMPTY.value: 5,
    RejectReason.STORAGE_FULL.value: 5,
}
"""Seconds, by how fast each can change: verdicts free leases and groups, a transaction or a person does the rest."""


def problem_of(error: Exception) -> Problem:
    """The document that stands for this error."""
    if isinstance(error, Rejected):
        return _refusal(error.reason, error.detail, error.value, error.threshold)
    if isinstance(error, SignatureInvalid):
        return _refusal(RejectReason.SIGNATURE_INVALID, f"{error.what}: {error.why}")
    if isinstance(error, RequestValidationError):
        return _refusal(RejectReason.SCHEMA_INVALID, _first_finding(error))
    if isinstance(error, VerificationFailed):
        return _refusal(RejectReason.SCHEMA_INVALID, f"{error.what}: {error.why}")
    if isinstance(error, OperationalError) and _disk_is_full(error):
        return _refusal(RejectReason.STORAGE_FULL, "the database can't grow")
    if isinstance(error, HTTPException):
        return _http(error.status_code, str(error.detail))
    if isinstance(error, NotFound):
        return _plain(404, "not_found", f"{error.what}: {error.why}", error.todo)
    if isinstance(error, NotEligible):
        return _refusal(RejectReason.NOT_REGISTERED, f"{error.what}: {error.why}")
    if isinstance(error, Unreachable | ProofpoolError):
        return _plain(503, "unavailable", f"{error.what}: {error.why}", error.todo)
    return _plain(500, "internal", "the coordinator failed on this request", "try again; its operator finds it logged")


def answer(problem: Problem) -> Response:
    """The HTTP response with this document."""
    seconds = _RETRY_AFTER.get(problem.code, RETRY_AFTER_SECONDS)
    headers = {"Retry-After": str(seconds)} if problem.status in _RETRY else {}
    return Response(problem.model_dump_json(), status_code=problem.status, media_type=PROBLEM_JSON, headers=headers)


def install_problems(app: FastAPI) -> None:
    """Turn every error of `app` into a problem document."""
    handler: Callable[[Request, Exception], Awaitable[Response]] = _handle
    for kind in (ProofpoolError, RequestValidationError, HTTPException, OperationalError):
        app.add_exception_handler(kind, handler)


class ProblemBoundary:
    """The outermost layer: what no handler foresaw is logged in full and answered in one line."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            if scope["type"] != "http" or started:
                raise
            get_logger().exception("request.failed", method=scope["method"], path=scope["path"])
            await answer(problem_of(error))(scope, receive, send)


async def _handle(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    log = get_logger().warning if problem.status >= 500 else get_logger().debug
    log("request.refused", method=request.method, path=request.url.path, code=problem.code, detail=problem.detail)
    return answer(problem)


def _refusal(reason: RejectReason, detail: str, value: str = "", threshold: str = "") -> Problem:
    status = _STATUS.get(reason, 422)
    return Problem(
        type=DOCS + reason.value,
        title=reason.value.replace("_", " "),
        status=status,
        code=reason.value,
        detail=detail,
        hint=reason.hint,
        value=value,
        threshold=threshold,
    )


def _http(status: int, detail: str) -> Problem:
    """What the framework refuses before any endpoint: a path, a method, a body that can't be parsed."""
    if status == http.HTTPStatus.BAD_REQUEST:
        return _refusal(RejectReason.SCHEMA_INVALID, detail)
    return _plain(status, "not_found" if status == http.HTTPStatus.NOT_FOUND else "http", detail, API_HINT)


def _plain(status: int, code: str, detail: str, hint: str = "") -> Problem:
    title = http.HTTPStatus(status).phrase
    return Problem(type="about:blank", title=title, status=status, code=code, detail=detail, hint=hint)


def _first_finding(error: RequestValidationError) -> str:
    finding: dict[str, Any] = error.errors()[0]
    return f"{'.'.join(str(part) for part in finding['loc'])}: {finding['msg']}"


def _disk_is_full(error: OperationalError) -> bool:
    code = getattr(error.orig, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL
