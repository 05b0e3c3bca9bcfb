"""`proofpool verifier calibrate`: measure a model's thresholds. Nothing heavy is imported until it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from verifier.calibration.options import Options


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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished threshold file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure a model's thresholds: honest work on all engines, precisions and kernels, and what lies near to it."""
    from verifier.calibration.output import check_output

    out = out or Path(f"thresholds.{dtype}.json")
    check_output(out, overwrite=overwrite, resume=resume)
    _say(f"calibrating {model}: loading torch")
    from verifier.calibration.options import Options
    from verifier.calibration.preview import preview
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
        out=out,
    )
    calibration = options.calibration()
    for line in preview(calibration.plan, rollouts):
        _say(line)
    try:
        document = calibration.run(resume=resume)
    except KeyboardInterrupt:
        _say_what_is_kept(options)
        raise
    if as_json:
        print(document.model_dump_json())
    else:
        print_summary(document, options.out)


def _say_what_is_kept(options: Options) -> None:
    from verifier.calibration.journal import num_kept
    from verifier.calibration.output import journal_of

    journal = journal_of(options.out)
    if journal.exists():
        _say(f"{num_kept(journal)} measurements are kept in {journal}; go on with:")
        _say(f"  {options.command_to_resume}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
