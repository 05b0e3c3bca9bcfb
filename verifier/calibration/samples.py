"""Observations as columns: every sample of every pairing of a generator with a judge, to be cut by size and pairing.

In: the journal's entries of one kind. Out: `Samples`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from verifier.calibration.journal import Entry
from verifier.calibration.observe import Observation
from verifier.calibration.tails import Floats

STATISTICS = (
    "toploc_exp_mismatch_share",
    "toploc_mantissa_mean",
    "sampling_margin_mean",
    "sampling_margin_max",
    "logprob_error_mean",
    "logprob_error_max",
)


@dataclass(frozen=True, eq=False)
class Samples:
    """`observations` [S], each with the number of its pairing in `pairings`, (generator, judge)."""

    observations: tuple[Observation, ...]
    places: npt.NDArray[np.int64]
    pairings: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Samples:
        pairings = tuple(dict.fromkeys((entry.generator, entry.judge) for entry in entries))
        places = [pairings.index((e.generator, e.judge)) for e in entries for _ in e.samples]
        observations = tuple(sample for entry in entries for sample in entry.samples)
        return cls(observations, np.array(places, dtype=np.int64), pairings)

    def column(self, name: str) -> Floats:
        """float64 [S]: a field of the observations."""
        return np.array([getattr(observation, name) for observation in self.observations], dtype=np.float64)

    @property
    def sizes(self) -> list[int]:
        """Sizes of sample that occur, in rollouts."""
        return sorted({observation.num_rollouts for observation in self.observations})

    def of_size(self, size: int) -> Samples:
        return self.only(self.column("num_rollouts") == size)

    def of_pairing(self, place: int) -> Samples:
        return self.only(self.places == place)

    def total(self, name: str) -> int:
        """Of a whole-number field; of samples of one size, that each rollout is in once."""
        return int(self.column(name).sum())

    def __len__(self) -> int:
        return len(self.observations)

    def flip_margins(self) -> Floats:
        """float64: of all flips (nats, unclipped); of samples of one size."""
        return np.array([m for observation in self.observations for m in observation.flip_margins], dtype=np.float64)

    def clipped(self, clip: float) -> Samples:
        """The same with margins that count up to `clip` for their mean."""
        observations = tuple(replace(o, sampling_margin_mean=_mean_margin(o, clip)) for o in self.observations)
        return replace(self, observations=observations)

    def only(self, chosen: npt.NDArray[np.bool_]) -> Samples:
        kept = np.flatnonzero(chosen)
        return Samples(tuple(self.observations[i] for i in kept), self.places[kept], self.pairings)


def _mean_margin(observation: Observation, clip: float) -> float:
    return sum(min(margin, clip) for margin in observation.flip_margins) / observation.num_tokens
