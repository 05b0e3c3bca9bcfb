"""`proofpool trace HASH`: the whole row of one submission, a line a stage, and what happened in a sentence.

In: a coordinator's URL. Out: task, submission, verdicts, batch, step, weights and chain events, and how fresh that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import typer

from verifier.audit.options import DEFAULT_URL, CoordinatorOption, JsonOption, LogSubject

if TYPE_CHECKING:
    from protocol.trace import Trace, TraceStage


def trace(
    subject: LogSubject,
    coordinator: CoordinatorOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Print the whole row of one submission, and what happened to it."""
    from protocol.client import CoordinatorClient
    from protocol.plain import plain

    with closing(CoordinatorClient(coordinator)) as client:
        found = client.trace(subject)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    for line in trace_lines(found):
        typer.echo(plain(line))


def trace_lines(found: Trace) -> Iterator[str]:
    """What a terminal shows."""
    yield f"submission {found.submission_id}" if found.submission_id else found.subject
    for stage in found.stages:
        yield from _stage_lines(stage)
    fresh = found.freshness
    yield f"indexed to block {fresh.indexed_block}, head {fresh.head_block}, lag {fresh.lag_seconds:.1f} s"
    yield found.what_happened.sentence


def _stage_lines(stage: TraceStage) -> Iterator[str]:
    leaves = f"  leaves {', '.join(map(str, stage.log_indexes))}" if stage.log_indexes else ""
    yield f"{stage.stage:<11} {stage.status:<15} {stage.id or '':<66}{leaves}".rstrip()
    if stage.signer is not None:
        yield f"{'':<11} by {stage.signer}"
    yield f"{'':<11} " + "  ".join(f"{name} {value}" for name, value in stage.values.items() if value)
