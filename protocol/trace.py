"""The whole row of one submission: task, submission, verdicts, batch, step, weights, chain events.

In: what `GET /v1/trace/{hash}` answers. Out: `Trace`; `proofpool trace HASH` prints it, the page of a submission
shows it. What happened, in words, is `protocol/fate.py`'s.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from protocol.api import Freshness
from protocol.fate import Fate
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
    """All stages of the work that `subject` is part of, in the order of the flow; what hasn't happened is left out.

    `subject` is what was asked for: a submission, its task, or anything else that the log has leaves about;
    `submission_id` is None where nothing was taken in. `what_happened` comes from the log alone.
    """

    schema_version: SchemaVersion = PROTOCOL_VERSION
    subject: Hash32
    submission_id: Hash32 | None
    what_happened: Fate
    stages: tuple[TraceStage, ...]
    freshness: Freshness
