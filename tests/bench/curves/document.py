"""The curves of all runs as one small file, docs/data/curves.json, which the tables and figures are made of.

In: each run's lines. Out: `Document`. Numbers are rounded to five digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from protocol.files import write_atomically
from tests.bench.curves.arms import Arm
from trainer.problem_filter import FilterReport

DATA = Path(__file__).resolve().parents[3] / "docs" / "data" / "curves.json"


@dataclass(frozen=True)
class Curve:
    """One run. Lists are by step, 1 onwards, but for `looks` and `pass_rates`, which are by look."""

    looks: tuple[int, ...]
    """Policy versions whose held-back pass rate was measured, 0 first."""
    pass_rates: tuple[float, ...]
    generated: tuple[float, ...]
    """Rollouts so far: trained ones, and those of groups that were dropped while they came together (`_generated`)."""
    entropy: tuple[float, ...]
    """Nats, mean over trained tokens."""
    kl_to_worker: tuple[float, ...]
    grad_norm: tuple[float, ...]
    """Before it is cut; mean over the step's optimizer steps."""
    ratio_p99: tuple[float, ...]
    delta_share: tuple[float, ...]
    """Trained tokens whose gradient δ took away."""

    def rollouts(self) -> tuple[float, ...]:
        """Generated up to each look."""
        return tuple(self.generated[look - 1] if look else 0.0 for look in self.looks)


@dataclass(frozen=True)
class Filtered:
    """What the offline filter did."""

    num_measured: int
    num_samples: int
    num_kept: int
    average: float
    kept_average: float

    @property
    def num_rollouts(self) -> int:
        return self.num_measured * self.num_samples


@dataclass(frozen=True)
class Document:
    """Every arm's settings, and its curves by seed."""

    command: str
    filtered: Filtered | None = None
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    curves: dict[str, dict[int, Curve]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        document = ADAPTER.dump_python(self, mode="json")
        text = json.dumps(document, separators=(",", ":"), allow_nan=False).replace('},"', '},\n"')
        write_atomically(path, text.encode() + b"\n")


ADAPTER: TypeAdapter[Document] = TypeAdapter(Document)


def read_document(path: Path = DATA) -> Document:
    return ADAPTER.validate_json(path.read_bytes())


def settings_of(arm: Arm) -> dict[str, Any]:
    return {name: value for name, value in asdict(arm).items() if name != "name"}


def curve_of(lines: Sequence[Mapping[str, Any]]) -> Curve:
    """A run's metrics.jsonl, of which line 0 is the base model's look."""
    looks = [line for line in lines if "held_back_average" in line]
    steps = lines[1:]

    def column(name: str) -> tuple[float, ...]:
        return tuple(_short(line[name]) for line in steps)

    return Curve(
        looks=tuple(line["step"] for line in looks),
        pass_rates=tuple(_short(line["held_back_average"]) for line in looks),
        generated=column("num_generated_rollouts"),
        entropy=column("entropy"),
        kl_to_worker=column("kl_to_worker"),
        grad_norm=column("grad_norm"),
        ratio_p99=column("ratio_p99"),
        delta_share=column("ratio_delta_share"),
    )


def filtered_of(report: FilterReport) -> Filtered:
    kept = [report.passes[index - report.plan.first] for index in report.indexes]
    samples = report.plan.num_samples
    return Filtered(
        num_measured=len(report.passes),
        num_samples=samples,
        num_kept=len(kept),
        average=_short(report.average),
        kept_average=_short(sum(kept) / (samples * len(kept))),
    )


def _short(value: float) -> float:
    return float(f"{value:.5g}")
