"""/v1/assignments, /v1/commitments, /v1/verdicts: what a validator is to judge, its commitments, its verdicts."""

from __future__ import annotations

from fastapi import APIRouter, status

from coordinator import submissions, verdicts
from coordinator.api.dependencies import CoordinatorOf, SignedBy
from protocol.api import Assignment, VerdictReveal
from protocol.wire import Address, Signed, VerdictCommitment

router = APIRouter(tags=["verdicts"])


@router.get("/assignments")
def list_assignments(coordinator: CoordinatorOf, validator: Address) -> list[Assignment]:
    """What this validator's seats have been drawn for and haven't judged yet, oldest first."""
    with coordinator.reading() as session:
        return submissions.assignments(session, validator)


@router.post("/commitments", status_code=status.HTTP_204_NO_CONTENT)
def commit_verdicts(coordinator: CoordinatorOf, caller: SignedBy, commitment: Signed[VerdictCommitment]) -> None:
    """Commit to verdicts before any is shown; repeating it changes nothing."""
    verdicts.commit(coordinator, caller.address, commitment)


@router.post("/verdicts", status_code=status.HTTP_204_NO_CONTENT)
def reveal_verdict(coordinator: CoordinatorOf, caller: SignedBy, opened: VerdictReveal) -> None:
    """Reveal a verdict whose commitment is anchored; repeating it changes nothing."""
    verdicts.reveal(coordinator, caller.address, opened)
