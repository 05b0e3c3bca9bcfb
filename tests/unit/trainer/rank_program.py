"""One rank of a trainer, as torchrun starts it: resumes, takes steps on a stored batch, saves each of them.

In: a folder with `base/`, `batch/` and perhaps `recipe.json`, which changes the recipe below, the version to stop at,
and `[scale]` settings as JSON. Out: `checkpoints/`,
and a line of figures a step in `figures.jsonl`. Run: torchrun … tests/unit/trainer/rank_program.py FOLDER N SCALE
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from protocol.errors import ProofpoolError
from protocol.signals import stop_on_signals
from trainer.batch_file import BatchFile
from trainer.checkpoint import CheckpointStore
from trainer.crew import Crew
from trainer.learner import Learner, RecipeConfig
from trainer.policy import Policy
from trainer.ranks import Ranks, ScaleConfig, parting, start_ranks

RECIPE = {
    "learning_rate": 1e-3,
    "warmup_steps": 0,
    "grad_norm_clip": 0.1,
    "optimizer_steps": 2,
    "max_tokens": 24,
    "objective": {"kl_coefficient": 0.1, "entropy_coefficient": 0.01},
}


def main(folder: Path, last_version: int, scale: ScaleConfig) -> None:
    stop_on_signals("trainer")  # torchrun sends SIGTERM to those that are left when one ends
    ranks = start_ranks(scale)
    (folder / f"pid.{ranks.rank}").write_text(str(os.getpid()))
    crew = make_crew(folder, ranks, scale)
    if not ranks.is_first:
        crew.follow()
        return
    with parting(ranks):
        lead(crew, folder, last_version)


def make_crew(folder: Path, ranks: Ranks, scale: ScaleConfig) -> Crew:
    changes = folder / "recipe.json"
    recipe = RecipeConfig.model_validate(RECIPE | (json.loads(changes.read_text()) if changes.exists() else {}))
    policy = Policy.load(folder / "base", ranks, scale, recipe.lora)
    reference = None
    if recipe.lora is None:
        reference = Policy.load(folder / "base", ranks, scale).requires_grad_(False)
    learner = Learner(policy, recipe, reference, ranks)
    return Crew(learner, CheckpointStore(folder / "checkpoints", keep=100), folder / "base")


def lead(crew: Crew, folder: Path, last_version: int) -> None:
    """What the loop does, without a coordinator: the same batch for each step."""
    file = BatchFile.load(folder / "batch")
    checkpoint = crew.checkpoints.start("newest")
    if checkpoint is None:
        checkpoint = crew.save(0, None, None)
    else:
        crew.restore(checkpoint)
    while checkpoint.policy_version < last_version:
        figures = crew.learn(crew.read(file), checkpoint.policy_version)
        checkpoint = crew.save(checkpoint.policy_version + 1, file, checkpoint)
        with (folder / "figures.jsonl").open("a") as out:
            out.write(json.dumps(asdict(figures)) + "\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]), ScaleConfig.model_validate_json(sys.argv[3]))
    except ProofpoolError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
