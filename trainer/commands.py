"""`proofpool trainer`: run the trainer of a pool; before there is one, choose problems and rehearse; look at curves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trainer.data_commands import app as data_app

app = typer.Typer(help="Take optimizer steps and broadcast weights.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.callback()
def trainer() -> None:
    """Take optimizer steps and broadcast weights."""


@app.command()
def run(
    config: Annotated[Path | None, typer.Option(help="TOML file; see docs/trainer.md.")] = None,
    num_steps: Annotated[int | None, typer.Option(help="Stop after this policy version.")] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="newest: the newest checkpoint, or the base model; anew: only the base model; or a version."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what a run would be: configuration, memory, what it would pull.")
    ] = False,
    num_ranks: Annotated[
        int | None, typer.Option(min=1, help="With --dry-run: ranks to estimate for; torchrun's without it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: print one JSON document.")] = False,
) -> None:
    """Train until stopped; started again, it goes on where it was. Under torchrun on as many ranks as that starts."""
    from protocol.errors import UsageError

    if dry_run:
        _dry_run(config, num_steps, resume, num_ranks, as_json)
        return
    if as_json or num_ranks is not None:
        raise UsageError(
            "that belongs to --dry-run", "--json or --num-ranks without it", "add --dry-run, or leave it out"
        )
    from trainer.process import run_trainer

    run_trainer(config, num_steps, resume)


def _dry_run(
    file: Path | None, num_steps: int | None, resume: str | None, num_ranks: int | None, as_json: bool
) -> None:
    from protocol.config import load_config
    from trainer.config import TrainerConfig
    from trainer.dry_run import dry_run, lines

    config = load_config(TrainerConfig, "trainer", file, flags={"num_steps": num_steps, "resume": resume})
    found = dry_run(config, num_ranks or int(os.environ.get("WORLD_SIZE", "1")))
    print(found.model_dump_json(indent=2) if as_json else "\n".join(lines(found)))


@app.command()
def init(
    recipe: Annotated[str, typer.Option(help="tiny, smollm2, or intellect2-32b, the paper's.")],
    out: Annotated[Path, typer.Option(help="Folder of trainer.toml and pool.toml.")] = Path(),
) -> None:
    """Write a ready configuration, and what the pool has to be for it; both are commented."""
    from trainer.recipe_files import write_recipe

    for path in write_recipe(recipe, out):
        print(path)


@app.command()
def rehearse(
    config: Annotated[Path | None, typer.Option(help="TOML file; see docs/trainer.md.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where metrics.jsonl goes; a folder without a run.")] = None,
    num_steps: Annotated[int | None, typer.Option(help="Optimizer steps of a batch each.")] = None,
    lag: Annotated[int | None, typer.Option(help="How many versions behind each batch is, exactly.")] = None,
    seed: Annotated[int | None, typer.Option(help="Other prompts and other noise.")] = None,
) -> None:
    """The whole recipe in one process: no chain, no proofs, and the policy lag emulated exactly."""
    from protocol.clock import SystemClock
    from protocol.config import load_config
    from protocol.engines.registry import make_engine
    from protocol.progress import Progress
    from trainer.rehearsal import RehearsalConfig, rehearse

    flags = {"data_dir": data_dir, "num_steps": num_steps, "lag": lag, "seed": seed}
    resolved = load_config(RehearsalConfig, "rehearsal", config, flags=flags)
    engine = make_engine("torch", max_batch=resolved.max_batch)
    with Progress("steps", resolved.num_steps) as progress:
        rehearse(resolved, engine, SystemClock(), progress)


@app.command("filter")
def filter_command(
    model: Annotated[Path, typer.Option(help="Hugging Face folder of the base model.")],
    rules: Annotated[Path, typer.Option(help="The pool's rules, or the ones that it is going to have.")],
    out: Annotated[Path, typer.Option(help="Folder of report.json, and of what is measured so far.")],
    num_problems: Annotated[int, typer.Option(min=1, help="How many are measured.")] = 1024,
    first: Annotated[int, typer.Option(min=0, help="Number of the first one.")] = 0,
    num_samples: Annotated[int, typer.Option(min=1, help="Completions a problem: k of pass@k.")] = 8,
    low: Annotated[float, typer.Option(min=0, max=1, help="Least share that passes of a kept problem.")] = 0.125,
    high: Annotated[float, typer.Option(min=0, max=1, help="Greatest share that passes of a kept problem.")] = 0.5,
    tier: Annotated[
        list[str] | None,
        typer.Option(metavar="LOW:HIGH:WEIGHT", help="Kept problems by difficulty; once for each tier."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples' noise.")] = 0,
    max_batch: Annotated[int, typer.Option(min=1, help="Rollouts that decode together.")] = 256,
    as_json: Json = False,
) -> None:
    """Which problems the base model passes sometimes but not often: pass@k within [--low, --high].

    The kept numbers go into the rules' environment as `only`, or with --tier as `tiers`. Cut short, it goes on.
    """
    from protocol.engines.registry import make_engine
    from trainer.filter_run import REPORT, filter_run
    from trainer.problem_filter import TierBounds

    report = filter_run(
        make_engine("torch", max_batch=max_batch),
        model,
        rules,
        out,
        first=first,
        num_problems=num_problems,
        num_samples=num_samples,
        seed=seed,
        limits=(low, high),
        tiers=[TierBounds.parse(flag) for flag in tier or ()],
    )
    if as_json:
        print(report.model_dump_json(indent=2))
        return
    kept, measured = len(report.indexes), len(report.passes)
    print(f"{kept} of {measured} problems kept ({kept / measured:.1%}); avg@{num_samples} {report.average:.3f}")
    for bounds, found in zip(tier or (), report.tiers, strict=True):
        print(f"tier {bounds}: {len(found.only)} problems")
    setting, place = ("tiers", "tiers") if tier else ("indexes", "only")
    print(f"report: {out / REPORT}; put its `{setting}` into the environment's configuration as `{place}`")


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or files named metrics.jsonl.")],
    out: Annotated[Path, typer.Option(help="A .png or .html file.")] = Path("curves.html"),
) -> None:
    """Draw the curves of one or more runs."""
    from trainer.plot import draw, read_curves

    draw([read_curves(run) for run in runs], out)
    print(out)


@app.command()
def status(
    run: Annotated[Path, typer.Argument(help="A run's folder, a testnet's, or a file named metrics.jsonl.")],
    as_json: Json = False,
) -> None:
    """What holds a run up, how old its rollouts are, and what was accepted and not trained on."""
    from trainer.run_status import read_lines, status_of

    found = status_of(run.name, read_lines(run))
    print(found.model_dump_json(indent=2) if as_json else "\n".join(found.lines()))
