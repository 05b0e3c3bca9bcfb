"""The offline filter: which problems the base model passes sometimes, but not often.

    training problems ─▶ k samples each ─▶ passes ─▶ those with low ≤ passes / k ≤ high

In: a model, a pool's rules, a range of problems. Out: a `FilterReport`, whose `indexes` go into the environment's
configuration (`only`). What is measured is kept line by line, so that a run that is cut short goes on. Source:
INTELLECT-2 (arXiv:2505.07291), section 3.3.1: pass@8 of the base model in [12.5 %, 50 %].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.engines.base import Engine
from protocol.environments.base import Environment, Tier
from protocol.errors import UsageError
from protocol.progress import Steps
from protocol.rules import Rules
from protocol.wire import Hash32
from trainer.evaluation import pass_counts
from trainer.pass_journal import CHUNK_PROBLEMS, PassJournal

Share = Annotated[float, Field(ge=0, le=1)]


class FilterPlan(BaseModel):
    """What is measured; a run goes on only under the same plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    environment_hash: Hash32
    model_sha256: str
    first: int
    num_samples: int
    seed: int


class FilterReport(BaseModel):
    """Which problems are kept, and what the model made of all."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[2] = 2
    plan: FilterPlan
    low: Share
    high: Share
    indexes: tuple[int, ...]
    """The kept ones."""
    tiers: tuple[Tier, ...] = ()
    """The kept ones by difficulty, as asked for: for the environment's `tiers`."""
    passes: tuple[int, ...]
    """Of each problem, `plan.first` onwards."""
    average: Share
    """avg@k over all problems."""


def is_kept(passes: int, num_samples: int, low: float, high: float) -> bool:
    return low <= passes / num_samples <= high


def filter_problems(
    plan: FilterPlan,
    num_problems: int,
    rules: Rules,
    environment: Environment,
    engine: Engine,
    measured: PassJournal,
    limits: tuple[float, float],
    progress: Steps,
) -> FilterReport:
    """Measure what isn't measured yet."""
    passes = measured.passes()
    while len(passes) < num_problems:
        start = plan.first + len(passes)
        size = min(CHUNK_PROBLEMS, num_problems - len(passes))
        progress.doing(f"problems {start} to {start + size - 1}")
        problems = [environment.problem(index) for index in range(start, start + size)]
        found = pass_counts(engine, environment, problems, rules, plan.num_samples, plan.seed)
        measured.append(found)
        passes += found
        progress.step()
    return report_of(plan, passes[:num_problems], *limits)


def journal_of(plan: FilterPlan, path: Path) -> PassJournal:
    """What is measured under the plan so far. Raises UsageError where the file is of another one."""
    journal = PassJournal(path, plan)
    if (other := journal.other_plan) is not None:
        raise UsageError(
            "an earlier run measured something else", f"{path} has {other}", "name another folder with --out"
        )
    return journal


def report_of(plan: FilterPlan, passes: Sequence[int], low: float, high: float) -> FilterReport:
    kept = [plan.first + place for place, count in enumerate(passes) if is_kept(count, plan.num_samples, low, high)]
    return FilterReport(
        plan=plan,
        low=low,
        high=high,
        indexes=tuple(kept),
        passes=tuple(passes),
        average=sum(passes) / (plan.num_samples * len(passes)),
    )


class TierBounds(BaseModel):
    """Problems whose share of passes lies within `low` to `high` make a tier of this weight."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    low: Share
    high: Share
    weight: int = Field(ge=1, lt=2**32)

    @classmethod
    def parse(cls, flag: str) -> TierBounds:
        """From `LOW:HIGH:WEIGHT`. Raises UsageError.

        >>> TierBounds.parse("0.125:0.25:3").weight
        3
        """
        try:
            low, high, weight = flag.split(":")
            tier = cls.model_validate({"low": low, "high": high, "weight": weight})
            if tier.low > tier.high:
                raise ValueError(f"{low} is above {high}")
            return tier
        except ValueError as error:
            raise UsageError("that is no tier", flag, "give LOW:HIGH:WEIGHT, such as 0.125:0.25:3") from error


def with_tiers(report: FilterReport, bounds: Sequence[TierBounds]) -> FilterReport:
    """The kept problems by difficulty: each is of the first tier that holds it, or of none. Raises UsageError."""
    plan, left, tiers = report.plan, list(report.indexes), []
    for one in bounds:
        held = [
            index for index in left if is_kept(report.passes[index - plan.first], plan.num_samples, one.low, one.high)
        ]
        if not held:
            todo = "measure more problems, or set other bounds"
            raise UsageError("a tier has no problem", f"{one.low:g}:{one.high:g}:{one.weight}", todo)
        tiers.append(Tier(weight=one.weight, only=tuple(held)))
        left = [index for index in left if index not in set(held)]
    return report.model_copy(update={"tiers": tuple(tiers)})


def num_chunks(num_problems: int) -> int:
    """Of so many problems, which may be fewer than none."""
    return -(-max(0, num_problems) // CHUNK_PROBLEMS)
