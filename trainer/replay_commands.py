"""`proofpool audit replay-step`: take a trainer's step again, and hold the outcome against what it published."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.replay import StepReplay


def replay_step(
    step: Annotated[int, typer.Argument(metavar="N", min=1, help="The policy version that the step made.")],
    checkpoints: Annotated[Path, typer.Option(help="The trainer's checkpoints: folders N-1 and N are read.")],
    batch: Annotated[Path | None, typer.Option(help="Rollout file of the batch, in place of the stored one.")] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="Take the rollout file from there, in place of the stored one.")
    ] = None,
    base_model: Annotated[
        Path | None, typer.Option(help="The model that the run began with, for a KL term or LoRA.")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Largest difference of a value that counts as equal.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Take the step again that made policy version N, from version N-1 and the batch: each tensor must come out.

    Equal to the bit on a CPU of the same kind. Exit code 3 where a tensor differs: the first one is named.
    """
    from trainer.replay import replay_from

    found = replay_from(checkpoints, step, _data(checkpoints, step, batch, coordinator), base_model, tolerance)
    typer.echo(found.model_dump_json(indent=2) if as_json else "\n".join(_lines(found)))
    return 0 if found.holds else 3


def _data(checkpoints: Path, step: int, batch: Path | None, coordinator: str | None) -> bytes | None:
    from protocol.client import CoordinatorClient
    from protocol.errors import UsageError
    from trainer.checkpoint import CheckpointStore

    if batch is not None and coordinator is not None:
        raise UsageError("two batches for one step", "--batch and --coordinator", "give one of them, or neither")
    if batch is not None:
        return batch.read_bytes()
    number = CheckpointStore(checkpoints).of(step).batch_number if coordinator is not None else None
    if coordinator is None or number is None:
        return None
    with closing(CoordinatorClient(coordinator)) as client:
        return client.batch_file(number)


def _lines(found: StepReplay) -> Iterator[str]:
    equal = f"equal within {found.tolerance:g}" if found.tolerance else "equal to the bit"
    yield f"step {found.policy_version}: batch {found.batch.number}, {found.num_tensors} tensors compared"
    yield f"  published as manifest {found.manifest_hash}: hold that against the chain's"
    yield from (f"  other arithmetic: {line}" for line in found.other_arithmetic)
    if (difference := found.first_difference) is None:
        yield f"✓ policy version {found.policy_version} comes out, {equal}"
        return
    largest = "by no finite number" if difference.largest is None else f"by at most {difference.largest:.3g}"
    yield f"✗ policy version {found.policy_version} doesn't come out; the first tensor that differs:"
    yield f"  {difference.tensor}: {difference.num_different} of {difference.num_values} values, {largest}"
    if found.other_arithmetic:
        yield "  do: replay on a machine as the step was taken on, or give a --tolerance such as 1e-5"
    else:
        yield "  do: ask the trainer to account for this version: its state isn't what the step makes"
