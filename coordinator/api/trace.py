"""/v1/trace and the proof bundle: what happened to a hash, one submission's whole row, to read and to check offline."""

from __future__ import annotations

from fastapi import APIRouter

from coordinator.api.dependencies import CoordinatorOf
from coordinator.bundle import proof_bundle
from coordinator.trace import trace
from protocol.bundle import ProofBundle
from protocol.trace import Trace
from protocol.wire import Hash32, UInt64

router = APIRouter(tags=["audit"])


@router.get("/trace/{subject}")
def get_trace(coordinator: CoordinatorOf, subject: Hash32) -> Trace:
    """What happened to a submission, a task or any subject of the log; of a submission also each of its stages."""
    with coordinator.reading() as session:
        return trace(coordinator, session, subject)


@router.get("/submissions/{submission_id}/bundle")
def get_bundle(coordinator: CoordinatorOf, submission_id: Hash32, size: UInt64 | None = None) -> ProofBundle:
    """All that `proofpool audit verify --bundle` needs, in one document that leads to the head of `size` leaves."""
    with coordinator.reading() as session:
        return proof_bundle(coordinator, session, submission_id, size)
