"""The threshold file: limits, and with them what they were measured on and what was measured.

In: a calibration's results. Out: a JSON document with `schema_version`; `limits` is what rules take, the rest is for
whoever asks why. Nothing in it depends on when or how often it was run: the same options give the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from protocol.files import write_atomically
from protocol.rules import Rules, Thresholds
from verifier.calibration.journal import Entry
from verifier.calibration.samples import STATISTICS, Samples

QUANTILES = (0.5, 0.9, 0.99, 0.999)


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Distribution(_Document):
    """Quantiles of a statistic over samples; `highest` is the largest seen."""

    median: float
    q90: float
    q99: float
    q999: float
    highest: float


class PairingReport(_Document):
    """One generator's rollouts as one judge saw them. Statistics of single rollouts, and of whole submissions."""

    generator: str
    judge: str
    num_rollouts: int
    num_tokens: int
    num_flips: int
    num_degenerate: int
    rollouts: dict[str, Distribution]
    submissions: dict[str, Distribution]


class LengthReport(_Document):
    """Single rollouts of up to so many output tokens (and more than the row before)."""

    up_to_tokens: int
    num_rollouts: int
    num_prompt_tokens: float
    statistics: dict[str, Distribution]


class DeviationReport(_Document):
    """Dishonest work near to honest work, in whole submissions. `times_reject`: least value over the reject limit."""

    deviation: str
    num_submissions: int
    num_tokens: int
    least: dict[str, float]
    times_reject: dict[str, float]
    flip_share: float
    num_refused: int
    refused_by: list[str]


class Honest(_Document):
    """All honest work: `num_rollouts` were generated, and judged `num_judged` times in all."""

    num_rollouts: int
    num_judged: int
    num_tokens: int
    pairings: list[PairingReport]
    lengths: list[LengthReport]


class ThresholdFile(_Document):
    """Example: `ThresholdFile.model_validate_json(path.read_text()).limits`."""

    schema_version: Literal[1] = 1
    model: dict[str, str]
    dtype: str
    limits: Thresholds
    derivations: dict[str, dict[str, Any]]
    honest: Honest
    deviations: list[DeviationReport]
    rules: dict[str, Any]
    made_with: dict[str, str]
    command: str

    def write(self, path: Path) -> None:
        """Whole or not at all."""
        write_atomically(path, (self.model_dump_json(indent=1) + "\n").encode())


def rules_of(rules: Rules) -> dict[str, Any]:
    """What a calibration depends on of a pool's rules."""
    names = {"environment", "sampling", "toploc", "lengths", "group_size", "groups_per_task"}
    return rules.model_dump(mode="json", include=names)


def honest_report(samples: Samples, num_rollouts: int) -> Honest:
    """Of all honest samples."""
    alone = samples.of_size(1)
    return Honest(
        num_rollouts=num_rollouts,
        num_judged=len(alone),
        num_tokens=alone.total("num_tokens"),
        pairings=[_pairing(samples, place) for place in range(len(samples.pairings))],
        lengths=list(_lengths(alone)),
    )


def deviation_report(entries: Sequence[Entry], limits: Thresholds) -> DeviationReport:
    """Of one deviation's submissions."""
    samples = Samples.of(entries).clipped(limits.sampling_margin_clip)
    whole = samples.of_size(samples.sizes[-1])
    least = {name: float(whole.column(name).min()) for name in STATISTICS}
    return DeviationReport(
        deviation=entries[0].kind,
        num_submissions=len(whole),
        num_tokens=whole.total("num_tokens"),
        least={name: _short(value) for name, value in least.items()},
        times_reject=_times_reject(whole, limits),
        flip_share=_short(whole.total("num_flips") / whole.total("num_tokens")),
        num_refused=sum(bool(entry.refused_by) for entry in entries),
        refused_by=sorted({name for entry in entries for name in entry.refused_by}),
    )


def _times_reject(whole: Samples, limits: Thresholds) -> dict[str, float]:
    found = {}
    for name in STATISTICS:
        limit = getattr(limits, name)
        if limit is None:
            continue
        unit = "num_chunks" if name.startswith("toploc") else "num_tokens"
        at = np.array([limit.at(int(n)).reject for n in whole.column(unit)])
        found[name] = _short(float((whole.column(name) / at).min()))
    return found


def _pairing(samples: Samples, place: int) -> PairingReport:
    part = samples.of_pairing(place)
    alone, whole = part.of_size(1), part.of_size(samples.sizes[-1])
    generator, judge = samples.pairings[place]
    return PairingReport(
        generator=generator,
        judge=judge,
        num_rollouts=len(alone),
        num_tokens=alone.total("num_tokens"),
        num_flips=alone.total("num_flips"),
        num_degenerate=alone.total("num_degenerate"),
        rollouts=_distributions(alone),
        submissions=_distributions(whole),
    )


def _lengths(alone: Samples) -> list[LengthReport]:
    """Classes of doubling length: 8, 16, 32, … tokens."""
    tokens, found, above = alone.column("num_tokens"), [], 0
    up_to = 8
    while above < tokens.max():
        chosen = (tokens > above) & (tokens <= up_to)
        if chosen.any():
            part = alone.only(chosen)
            found.append(
                LengthReport(
                    up_to_tokens=up_to,
                    num_rollouts=len(part),
                    num_prompt_tokens=_short(float(part.column("num_prompt_tokens").mean())),
                    statistics=_distributions(part),
                )
            )
        above, up_to = up_to, 2 * up_to
    return found


def _distributions(part: Samples) -> dict[str, Distribution]:
    return {name: _distribution(part.column(name)) for name in STATISTICS}


def _distribution(values: np.ndarray[Any, np.dtype[np.float64]]) -> Distribution:
    median, q90, q99, q999 = (_short(float(q)) for q in np.quantile(values, QUANTILES))
    return Distribution(median=median, q90=q90, q99=q99, q999=q999, highest=_short(float(values.max())))


def _short(value: float) -> float:
    return float(f"{value:.4g}")
