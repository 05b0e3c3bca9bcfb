"""The figures of docs/training.md: a line an arm, its mean over seeds, in a band of one standard error.

In: a `Document`. Out: PNG files beside the page. The same document gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from protocol.files import write_atomically
from tests.bench.curves.document import Curve, Document
from tests.bench.curves.statistics import at

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "figures"
STYLE: dict[Any, Any] = {"font.size": 8}
NUM_PLACES, LEAST_KL = 40, 1e-6

Line = Callable[[Curve], tuple[Sequence[float], Sequence[float]]]
"""Places and heights of one curve."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `line` says what of a curve is drawn."""

    title: str
    x: str
    arms: tuple[str, ...]
    line: Line
    is_logarithmic: bool = False


def pass_rate_by_step(curve: Curve) -> tuple[Sequence[float], Sequence[float]]:
    return curve.looks, curve.pass_rates


def pass_rate_by_rollouts(curve: Curve) -> tuple[Sequence[float], Sequence[float]]:
    return curve.rollouts(), curve.pass_rates


def kl_to_worker_by_step(curve: Curve) -> tuple[Sequence[float], Sequence[float]]:
    """At least `LEAST_KL`, so that on-policy steps have a place on a logarithmic axis."""
    return range(1, len(curve.kl_to_worker) + 1), [max(kl, LEAST_KL) for kl in curve.kl_to_worker]


def grad_norm_by_step(curve: Curve) -> tuple[Sequence[float], Sequence[float]]:
    return range(1, len(curve.grad_norm) + 1), curve.grad_norm


def draw(document: Document, panels: Sequence[Panel], out: Path) -> None:
    """Write one PNG with the panels side by side; arms without curves are left out."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.0), squeeze=False)
        for axis, panel in zip(axes.flat, panels, strict=True):
            _fill(axis, panel, document)
        figure.tight_layout()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        plt.close(figure)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, buffer.getvalue())


def _fill(axis: Any, panel: Panel, document: Document) -> None:
    for arm in panel.arms:
        lines = [panel.line(curve) for curve in document.curves.get(arm, {}).values()]
        if lines:
            _band(axis, arm, lines, panel.is_logarithmic)
    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel(panel.x)
    axis.set_yscale("log" if panel.is_logarithmic else "linear")
    axis.grid(alpha=0.3)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7)


def _band(axis: Any, name: str, lines: Sequence[tuple[Sequence[float], Sequence[float]]], is_logarithmic: bool) -> None:
    """Mean and standard error at places that all lines reach; of logarithms where the axis has them."""
    first, last = max(places[0] for places, _ in lines), min(places[-1] for places, _ in lines)
    grid = np.linspace(first, last, NUM_PLACES)
    heights = np.array([[at(places, values, place) for place in grid] for places, values in lines])
    heights = np.log(heights) if is_logarithmic else heights
    mean = heights.mean(axis=0)
    error = heights.std(axis=0, ddof=1) / len(lines) ** 0.5 if len(lines) > 1 else np.zeros_like(mean)
    back = np.exp if is_logarithmic else np.asarray
    (drawn,) = axis.plot(grid, back(mean), linewidth=1.3, label=name)
    axis.fill_between(grid, back(mean - error), back(mean + error), alpha=0.2, color=drawn.get_color(), linewidth=0)
