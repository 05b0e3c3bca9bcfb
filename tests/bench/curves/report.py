"""Tables and figures of docs/training.md: between `<!-- curves: NAME -->` and `<!-- end -->`, and in docs/figures.

In: docs/data/curves.json. Out: the page with its tables made anew, and the figures.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from tests.bench.curves.arms import EXPERIMENTS
from tests.bench.curves.comparison import COMPARISONS, Comparison, Standing, standings
from tests.bench.curves.document import DATA, Curve, Document
from tests.bench.curves.figures import (
    FOLDER,
    Panel,
    draw,
    grad_norm_by_step,
    kl_to_worker_by_step,
    pass_rate_by_rollouts,
    pass_rate_by_step,
)
from tests.bench.curves.statistics import Difference, Mean

PAGE = DATA.parents[1] / "training.md"
MARKS = re.compile(r"<!-- curves: (?P<name>[^>]+?) -->\n.*?<!-- end -->", re.DOTALL)

CLIPS = tuple(arm.name for arm in EXPERIMENTS["clip"])


def _panels() -> dict[str, tuple[Panel, ...]]:
    """By file name."""
    lags, filters = (COMPARISONS[name].arms for name in ("lag", "filter"))
    rate, step = "held-back pass rate", "step"
    return {
        "lag.png": (
            Panel(rate, step, lags, pass_rate_by_step),
            Panel("KL to the version that sampled (nats)", step, lags, kl_to_worker_by_step, is_logarithmic=True),
        ),
        "clip.png": (
            Panel(f"{rate}, lag 4", step, CLIPS, pass_rate_by_step),
            Panel("gradient norm, not cut", step, CLIPS, grad_norm_by_step, is_logarithmic=True),
        ),
        "filter.png": (
            Panel(rate, "rollouts generated", filters, pass_rate_by_rollouts),
            Panel(rate, step, filters, pass_rate_by_step),
        ),
    }


def draw_figures(document: Document, folder: Path = FOLDER) -> list[Path]:
    """The files that were written."""
    for name, panels in _panels().items():
        draw(document, panels, folder / name)
    return [folder / name for name in _panels()]


def renewed(page: str, document: Document) -> str:
    """The page with every table made anew. Raises KeyError for a table or an arm that isn't there."""

    def part(found: re.Match[str]) -> str:
        name = found["name"]
        table = clip_table(document) if name == "clip" else standings_table(document, COMPARISONS[name])
        return f"<!-- curves: {name} -->\n{table}\n<!-- end -->"

    return MARKS.sub(part, page)


def standings_table(document: Document, comparison: Comparison) -> str:
    found = standings(document, comparison)
    head = [
        "arm",
        "rollouts generated",
        "over the course",
        "at the end",
        f"course − {comparison.base}",
        "p",
        f"end − {comparison.base}",
        "p",
    ]
    about = f"Over {found[0].reach:,.0f} {comparison.by}, {found[0].num_seeds} seeds:"
    return "\n".join([about, "", _line(head), "|---" + "|---:" * (len(head) - 1) + "|", *map(_standing, found)])


def clip_table(document: Document) -> str:
    """What became of each arm: whether it lasts, and how large its gradients were."""
    head = [
        "arm",
        "seeds",
        "best look",
        "last look",
        "seeds that end above the base",
        "largest gradient norm",
        "δ, % of tokens",
    ]
    rows = [_clip_row(arm, list(document.curves[arm].values())) for arm in CLIPS]
    return "\n".join([_line(head), "|---" + "|---:" * (len(head) - 1) + "|", *rows])


def _clip_row(arm: str, curves: list[Curve]) -> str:
    best = statistics.fmean(max(curve.pass_rates) for curve in curves)
    last = [curve.pass_rates[-1] for curve in curves]
    num_above = sum(curve.pass_rates[-1] > curve.pass_rates[0] for curve in curves)
    norms = [max(curve.grad_norm) for curve in curves]
    share = statistics.fmean(statistics.fmean(curve.delta_share) for curve in curves)
    spread = f"{statistics.median(norms):.3g} ({min(norms):.3g} to {max(norms):.3g})"
    cells = [arm, f"{len(curves)}", f"{best:.3f}", f"{statistics.fmean(last):.3f} ({min(last):.3f} to {max(last):.3f})"]
    return _line([*cells, f"{num_above}", spread, f"{100 * share:.2f}"])


def _standing(one: Standing) -> str:
    cells = [one.arm, f"{one.num_generated:,.0f}", _mean(one.course), _mean(one.end)]
    return _line([*cells, *_difference(one.course_difference), *_difference(one.end_difference)])


def _mean(mean: Mean) -> str:
    return f"{mean.value:.3f} ± {mean.error:.3f}"


def _difference(found: Difference | None) -> tuple[str, str]:
    if found is None:
        return "–", "–"
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})", f"{found.p:.2g}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
