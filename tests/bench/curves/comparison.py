"""Arms held against one of them, seed by seed: how high their curves lie over the whole course, and at its end.

In: a `Document`. Out: a `Standing` an arm. Curves are compared over the same stretch: as many steps, or as many
generated rollouts, as the shortest of them has. Two arms' seeds are paired: they have the same beacons, so that their
first tasks are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.bench.curves.document import Curve, Document
from tests.bench.curves.statistics import Difference, Mean, difference, height, mean_of

END_SHARE = 1 / 6
"""Of the course: the stretch that "at the end" is the mean of."""


@dataclass(frozen=True)
class Comparison:
    """`by`: what is equal. "rollouts" counts all that are generated, those of dropped groups included."""

    base: str
    others: tuple[str, ...]
    by: Literal["steps", "rollouts"]

    @property
    def arms(self) -> tuple[str, ...]:
        return (self.base, *self.others)


@dataclass(frozen=True)
class Standing:
    """One arm's pass rates; differences are to the comparison's base, and None for itself."""

    arm: str
    num_seeds: int
    reach: float
    """Steps or rollouts that were compared."""
    course: Mean
    end: Mean
    course_difference: Difference | None
    end_difference: Difference | None
    num_generated: float
    """Rollouts in the whole run, mean over seeds."""


COMPARISONS = {
    "lag": Comparison("lag-0", ("lag-1", "lag-2", "lag-4"), "steps"),
    "clip 1.5e-4": Comparison("one-sided-1.5e-4", ("two-sided-1.5e-4",), "steps"),
    "clip 2e-4": Comparison("one-sided-2e-4", ("two-sided-2e-4",), "steps"),
    "filter": Comparison("lag-2", ("offline-filter",), "rollouts"),
    "filter-steps": Comparison("lag-2", ("offline-filter",), "steps"),
}


def standings(document: Document, comparison: Comparison) -> list[Standing]:
    """Over the seeds that all arms have, which must be two or more."""
    curves = {arm: document.curves[arm] for arm in comparison.arms}
    seeds = sorted(set.intersection(*(set(found) for found in curves.values())))
    reach = min(_places(found[seed], comparison)[-1] for found in curves.values() for seed in seeds)
    courses = {arm: [_height(found[seed], comparison, 0, reach) for seed in seeds] for arm, found in curves.items()}
    ends = {
        arm: [_height(found[seed], comparison, reach * (1 - END_SHARE), reach) for seed in seeds]
        for arm, found in curves.items()
    }
    return [
        Standing(
            arm=arm,
            num_seeds=len(seeds),
            reach=reach,
            course=mean_of(courses[arm]),
            end=mean_of(ends[arm]),
            course_difference=None if arm == comparison.base else difference(courses[arm], courses[comparison.base]),
            end_difference=None if arm == comparison.base else difference(ends[arm], ends[comparison.base]),
            num_generated=mean_of([float(curves[arm][seed].generated[-1]) for seed in seeds]).value,
        )
        for arm in comparison.arms
    ]


def _places(curve: Curve, comparison: Comparison) -> Sequence[float]:
    return curve.looks if comparison.by == "steps" else curve.rollouts()


def _height(curve: Curve, comparison: Comparison, start: float, end: float) -> float:
    return height(_places(curve, comparison), curve.pass_rates, start, end)
