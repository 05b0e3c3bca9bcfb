"""The whole row of one submission: task, submission, verdicts, batch, step, weights, chain events.

In: what `GET /v1/trace/{hash}` answers. Out: `Trace`; `proofpool trace HASH` prints it, the page of a submission
shows it.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from protocol.api import Freshness
from protocol.wire import PROTOCOL_VERSION, Address, Hash32, SchemaVersion, UInt64


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TraceStage(_Shape):
    """One arrow of the flow table, as far as this submission has come.

    `id` is a digest where the stage has one; `signer` who answers for it; `log_indexes` its leaves in the audit log;
    `values` what a reader wants to see, as text.
    """

    stage: str
    id: str | None
    status: str
    signer: Address | None
    time: UInt64 | None
    log_indexes: tuple[UInt64, ...]
    values: dict[str, str]


class Trace(_Shape):
    """All stages of `submission_id`, in the order of the flow; stages that haven't happened are left out."""

    schema_version: SchemaVersion = PROTOCOL_VERSION
    submission_id: Hash32
    stages: tuple[TraceStage, ...]
    freshness: Freshness
