"""`proofpool verifier calibrate`: measure a model's thresholds. Nothing heavy is imported until it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    model: Annotated[Path, typer.Option(help="Model folder (config.json, model.safetensors, tokenizer.json).")],
    rules: Annotated[
        Path | None, typer.Option(help="JSON of the pool's rules, thresholds left out if need be; default: short sums.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Precision that the pool asks for: float32 or bfloat16.")] = "float32",
    rollouts: Annotated[int, typer.Option(help="Honest rollouts in all.")] = 4096,
    batch_sizes: Annotated[str, typer.Option(help="Of our engine, with commas between.")] = "1,8,64,256",
    generators: Annotated[str, typer.Option(help="Ways to generate, with commas between; default: all.")] = "",
    judges: Annotated[str, typer.Option(help="Ways to judge; the first judges everything; default: all.")] = "",
    previous: Annotated[Path | None, typer.Option(help="The policy version before, to measure its distance.")] = None,
    deviating: Annotated[int, typer.Option(help="Submissions of each deviation.")] = 4,
    seed: Annotated[int, typer.Option(help="Decides prompts and noise.")] = 0,
    out: Annotated[Path | None, typer.Option(help="The threshold file; default: thresholds.DTYPE.json here.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished calibration.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure a model's thresholds: honest work on all engines, precisions and kernels, and what lies near to it."""
    from verifier.calibration.options import Options
    from verifier.calibration.summary import print_summary

    options = Options(
        model=model,
        rules=rules,
        dtype=dtype,
        num_rollouts=rollouts,
        batch_sizes=batch_sizes,
        generators=generators,
        judges=judges,
        previous=previous,
        num_deviating=deviating,
        seed=seed,
        out=out or Path(f"thresholds.{dtype}.json"),
    )
    document = options.calibration().run(resume=resume)
    if as_json:
        print(document.model_dump_json())
    else:
        print_summary(document, options.out)
