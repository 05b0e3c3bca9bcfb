"""/v1/submissions: hand a file in; look at one, at its file, at the case against it, at a page of them."""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from coordinator import intake, partial, submissions
from coordinator.api.body import BODY
from coordinator.api.dependencies import CoordinatorOf, PageOf, SignedBy
from coordinator.api.files import PARQUET_BODY, blob_response, page_response
from protocol.api import CaseFile, Standing, SubmissionEnvelope, SubmissionView, UploadState
from protocol.client import ENVELOPE_HEADER
from protocol.errors import Rejected
from protocol.reasons import RejectReason
from protocol.wire import Address, Hash32, Receipt, Signed, UInt64

router = APIRouter(tags=["submissions"])


@router.put("/submissions/{submission_id}", openapi_extra=PARQUET_BODY)
def put_submission(
    coordinator: CoordinatorOf,
    caller: SignedBy,
    request: Request,
    submission_id: Hash32,
    envelope: Annotated[str, Header(alias=ENVELOPE_HEADER, description="base64url of a SubmissionEnvelope's JSON")],
) -> Signed[Receipt]:
    """Hand in a rollout file for a leased task; repeating it gives the same receipt. No body: it came in pieces."""
    return intake.admit(coordinator, caller.address, submission_id, _envelope(envelope), request.scope[BODY])


@router.put("/submissions/{submission_id}/pieces", openapi_extra=PARQUET_BODY)
def put_piece(
    coordinator: CoordinatorOf,
    caller: SignedBy,
    request: Request,
    submission_id: Hash32,
    offset: UInt64,
    envelope: Annotated[str, Header(alias=ENVELOPE_HEADER, description="base64url of a SubmissionEnvelope's JSON")],
) -> UploadState:
    """A piece of a rollout file; kept if it begins where the file ends so far, which the answer says in any case."""
    piece = request.scope[BODY]
    return partial.admit_piece(coordinator, caller.address, submission_id, _envelope(envelope), offset, piece)


@router.get("/submissions")
def list_submissions(
    coordinator: CoordinatorOf,
    request: Request,
    response: Response,
    page: PageOf,
    node: Address | None = None,
    standing: Standing | None = None,
) -> list[SubmissionView]:
    """Submissions in the order of arrival, keyed by log index, without their verdicts."""
    with coordinator.reading() as session:
        views = submissions.submission_page(session, page.after, page.limit, node, standing)
    return page_response(request, response, page, views, lambda view: view.log_index)


@router.get("/submissions/{submission_id}")
def get_submission(coordinator: CoordinatorOf, submission_id: Hash32) -> SubmissionView:
    """A submission with its verdicts, as it stands now."""
    with coordinator.reading() as session:
        row = submissions.submission_row(session, submission_id)
        return submissions.submission_view(session, row, submissions.verdicts_on(session, submission_id))


@router.get("/submissions/{submission_id}/file", response_class=Response)
def get_submission_file(coordinator: CoordinatorOf, request: Request, submission_id: Hash32) -> Response:
    """The rollout file as it was handed in."""
    with coordinator.reading() as session:
        blob_hash = submissions.submission_row(session, submission_id).file_sha256
    return blob_response(request, coordinator.blobs, blob_hash)


@router.get("/submissions/{submission_id}/case")
def get_case(coordinator: CoordinatorOf, submission_id: Hash32) -> CaseFile:
    """What an accusation is made of: signed submission, inclusion, verdicts with their draws."""
    with coordinator.reading() as session:
        return submissions.case_file(session, submission_id)


def _envelope(header: str) -> SubmissionEnvelope:
    try:
        return SubmissionEnvelope.model_validate_json(base64.b64decode(header, altchars=b"-_", validate=True))
    except ValueError as error:  # no base64, no ASCII, or no envelope
        raise Rejected(RejectReason.SCHEMA_INVALID, f"{ENVELOPE_HEADER}: {str(error).splitlines()[0][:200]}") from error
