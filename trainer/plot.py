"""The curves of one or more runs, drawn: reward, held-back passes, entropy, KL, clip, gradient norm, lag, time.

In: run folders with a metrics.jsonl. Out: a PNG, or one HTML page with the picture in it. Needs matplotlib (extra
`plot`). Run: `proofpool trainer plot RUN …`.
"""

from __future__ import annotations

import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError, UsageError
from protocol.files import write_atomically

METRICS = "metrics.jsonl"
PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("task reward", ("mean_task_reward",)),
    ("held-back pass rate", ("held_back_average",)),
    ("length penalty", ("mean_length_penalty",)),
    ("entropy (nats)", ("entropy",)),
    ("KL (nats)", ("kl_to_old", "kl_to_worker", "kl_to_reference")),
    ("clipped share", ("ratio_high_share", "ratio_low_share", "ratio_delta_share")),
    ("ratio, 1st and 99th percentile", ("ratio_p01", "ratio_p99")),
    ("gradient norm", ("grad_norm",)),
    ("policy lag (versions)", ("mean_policy_lag",)),
    ("seconds", ("waited_seconds", "seconds")),
)
"""Title, and the columns that share a panel; a panel without any value is left out."""
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


def read_curves(run: Path) -> Curves:
    """The metrics of a run, of a testnet's folder, or a metrics.jsonl itself. Raises UsageError without any."""
    file = run if run.is_file() else next((f for f in (run / METRICS, *_nested(run)) if f.exists()), None)
    if file is None:
        raise UsageError("there is nothing to draw", f"no {METRICS} under {run}", "name a run folder or the file")
    lines = []
    for number, text in enumerate(file.read_text().splitlines(), start=1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise _unreadable(file, number, str(error)) from error
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise _unreadable(file, number, "it names no step")
        lines.append(line)
    if not lines:
        raise UsageError("there is nothing to draw yet", f"{file} is empty", "wait for the first step")
    return Curves(run.name, tuple(lines))


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
    num_rows = -(-len(panels) // NUM_COLUMNS)
    figure, axes = plt.subplots(num_rows, NUM_COLUMNS, figsize=(11, 2.6 * num_rows), squeeze=False)
    for axis, (title, names) in zip(axes.flat, panels, strict=False):
        _panel(axis, runs, title, names)
    for axis in axes.flat[len(panels) :]:
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
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("step", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7)


def _page(runs: Sequence[Curves]) -> bytes:
    """One file without anything from elsewhere: the picture as SVG, and each run's last line as a table."""
    svg = _image(runs, "svg").decode()
    svg = svg[svg.index("<svg") :]
    names = sorted({name for run in runs for name in run.lines[-1]} - {"step"})
    head = "".join(f"<th>{html.escape(run.name)}, step {run.lines[-1]['step']}</th>" for run in runs)
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{_value(run.lines[-1].get(name))}</td>' for run in runs)}</tr>"
        for name in names
    )
    style = "body{font:14px sans-serif;margin:2em}td,th{padding:2px 12px;text-align:right}"
    title = html.escape(", ".join(run.name for run in runs))
    page = f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style><h1>{title}</h1>{svg}"
    return f"{page}<table><tr><th></th>{head}</tr>{rows}</table>\n".encode()


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def _unreadable(file: Path, number: int, why: str) -> UsageError:
    return UsageError("a metrics file can't be read", f"{file}, line {number}: {why}", "name another file")


def _nested(run: Path) -> list[Path]:
    return sorted(run.glob(f"data/trainer/{METRICS}"))
