"""The curves of one or more runs, drawn: reward, held-back passes, entropy, KL, clip, gradient norm, lag, waits, speed.

In: run folders with a metrics.jsonl. Out: a PNG, or one HTML page with the picture in it. Needs matplotlib (extra
`plot`). Run: `proofpool trainer plot RUN …`.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError, UsageError
from protocol.files import write_atomically
from trainer.run_status import lag_counts, read_lines, status_of

PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("task reward", ("mean_task_reward",)),
    ("held-back avg@k and pass@k", ("held_back_average", "held_back_at_least_once")),
    ("length penalty", ("mean_length_penalty",)),
    ("objective", ("objective",)),
    ("entropy (nats)", ("entropy",)),
    ("KL (nats)", ("kl_to_old", "kl_to_worker", "kl_to_worker_bounded", "kl_to_reference")),
    ("start / worker, 1st and 99th percentile", ("worker_ratio_p01", "worker_ratio_p99")),
    ("clipped share", ("ratio_high_share", "ratio_low_share", "ratio_delta_share")),
    ("ratio, 1st and 99th percentile", ("ratio_p01", "ratio_p99")),
    ("gradient norm", ("grad_norm",)),
    ("policy lag (versions)", ("min_policy_lag", "mean_policy_lag", "max_policy_lag")),
    (
        "accepted groups not trained on",
        ("num_stale_groups", "num_dropped_groups", "num_surplus_groups", "num_unfit_groups"),
    ),
    ("waits (s)", ("waited_seconds", "waited_to_publish_seconds", "waited_to_evaluate_seconds")),
    ("work (s)", ("seconds", "step_seconds", "learn_seconds", "save_seconds", "evaluation_seconds")),
    ("trained tokens a second of learning", ("tokens_per_second",)),
    ("MFU", ("mfu",)),
)
"""Title, and the columns that share a panel; a panel without any value is left out."""
HISTOGRAM = "rollouts by policy lag"
NUM_COLUMNS = 2


@dataclass(frozen=True)
class Curves:
    """One run's metrics."""

    name: str
    lines: tuple[dict[str, Any], ...]

    def column(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of a column, where it has numbers."""
        points = [(line["step"], line[name]) for line in self.lines if isinstance(line.get(name), int | float)]
        return [step for step, _ in points], [value for _, value in points]

    @property
    def newest(self) -> dict[str, Any]:
        """Every column's newest value."""
        return {name: value for line in self.lines for name, value in line.items()}

    @property
    def lag_shares(self) -> dict[int, float]:
        """The share of rollouts that each policy lag has, over all steps; empty for a run that doesn't say."""
        counts = lag_counts(self.lines)
        return {lag: count / counts.total() for lag, count in sorted(counts.items())}


def read_curves(run: Path) -> Curves:
    """The metrics of a run, of a testnet's folder, or a metrics.jsonl itself. Raises UsageError without any."""
    return Curves(run.name, tuple(read_lines(run)))


def draw(runs: Sequence[Curves], out: Path) -> None:
    """Write `out` as its ending says: .png or .html. Raises UsageError for another, ConfigError without matplotlib."""
    if out.suffix not in (".png", ".html"):
        raise UsageError("a picture can't be written like that", f"{out}", "name a .png or a .html file with --out")
    write_atomically(out, _image(runs, "png") if out.suffix == ".png" else _page(runs))


def _image(runs: Sequence[Curves], kind: str) -> bytes:
    try:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ConfigError("drawing needs matplotlib", str(error), "pip install 'proofpool[plot]'") from error
    panels = [(title, names) for title, names in PANELS if any(run.column(name)[0] for run in runs for name in names)]
    has_lags = any(run.lag_shares for run in runs)
    num_rows = -(-(len(panels) + has_lags) // NUM_COLUMNS)
    figure, axes = plt.subplots(num_rows, NUM_COLUMNS, figsize=(11, 2.6 * num_rows), squeeze=False)
    for axis, (title, names) in zip(axes.flat, panels, strict=False):
        _panel(axis, runs, title, names)
    if has_lags:
        _histogram(axes.flat[len(panels)], runs)
    for axis in axes.flat[len(panels) + has_lags :]:
        axis.set_axis_off()
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)
    return buffer.getvalue()


def _panel(axis: Any, runs: Sequence[Curves], title: str, names: Sequence[str]) -> None:
    for run in runs:
        for name in names:
            steps, values = run.column(name)
            label = " ".join([run.name] * (len(runs) > 1) + [name] * (len(names) > 1))
            if steps:
                axis.plot(steps, values, marker="." if len(steps) < 40 else None, linewidth=1.2, label=label or None)
    _label(axis, title, "step")


def _histogram(axis: Any, runs: Sequence[Curves]) -> None:
    """Bars of all runs, side by side."""
    width = 0.8 / len(runs)
    for place, run in enumerate(runs):
        shares = run.lag_shares
        left = [lag + width * (place - (len(runs) - 1) / 2) for lag in shares]
        axis.bar(left, list(shares.values()), width, label=run.name if len(runs) > 1 else None)
    axis.set_xticks(range(max(lag for run in runs for lag in (0, *run.lag_shares)) + 1))
    _label(axis, HISTOGRAM, "versions")


def _label(axis: Any, title: str, below: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(below, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7)


def _page(runs: Sequence[Curves]) -> bytes:
    """One file without anything from elsewhere: the picture as SVG, what the runs' status says, the newest values."""
    svg = _image(runs, "svg").decode()
    svg = svg[svg.index("<svg") :]
    newest = [run.newest for run in runs]
    names = sorted({name for values in newest for name in values} - {"step", "time"})
    head = "".join(f"<th>{html.escape(run.name)}, step {run.newest['step']}</th>" for run in runs)
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{_value(values.get(name))}</td>' for values in newest)}</tr>"
        for name in names
    )
    told = "".join(f"<pre>{html.escape(chr(10).join(status_of(run.name, run.lines).lines()))}</pre>" for run in runs)
    style = "body{font:14px sans-serif;margin:2em}td,th{padding:2px 12px;text-align:right}"
    title = html.escape(", ".join(run.name for run in runs))
    page = f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style><h1>{title}</h1>{svg}"
    return f"{page}{told}<table><tr><th></th>{head}</tr>{rows}</table>\n".encode()


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))
