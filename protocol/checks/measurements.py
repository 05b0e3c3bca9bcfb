"""What the forward pass over the audited rollouts gave: numbers a token and results a proof chunk.

In: slices of hidden states and logits (`checks/prefill.py`). Out: `Measurements`, which all checks that need the model
look at; states and logits are dropped slice by slice, so memory stays bounded whatever length and vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from protocol.checks.case import Case
from protocol.errors import ProofpoolError
from protocol.rollouts import Rollout
from protocol.sampling_rows import RowStatistics
from protocol.toploc.pooled import ChunkResult, ProofErrors

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measurements:
    """R audited rollouts with N output tokens in C proof chunks, in order of their numbers in the task.

    `rollouts`, `lengths`: the number and the output tokens of each; `rows`: arrays [N]; `chunks`: with the rollout's
    number; `asked`: float64, log-probs (nats) of the tokens that `measure` was asked for, in the order of asking.
    """

    rollouts: tuple[int, ...]
    lengths: tuple[int, ...]
    rows: RowStatistics
    chunks: tuple[ChunkResult, ...]
    asked: Floats

    @classmethod
    def joined(cls, parts: Sequence[Measurements]) -> Measurements:
        """The measurements of different rollouts as one, in order of their numbers; `asked` in the order of `parts`."""
        each = sorted((number, part, index) for part, found in enumerate(parts) for index, number in _numbered(found))
        pieces = [parts[part].only(index) for _, part, index in each]
        return cls(
            rollouts=tuple(number for number, _, _ in each),
            lengths=tuple(length for piece in pieces for length in piece.lengths),
            rows=RowStatistics.joined([piece.rows for piece in pieces]),
            chunks=tuple(chunk for piece in pieces for chunk in piece.chunks),
            asked=np.concatenate([part.asked for part in parts]),
        )

    def only(self, index: int) -> Measurements:
        """Those of one audited rollout, the `index`th of `rollouts`."""
        number, end = self.rollouts[index], int(self._ends[index])
        tokens = slice(end - self.lengths[index], end)
        rows = RowStatistics(*(getattr(self.rows, field.name)[tokens] for field in fields(RowStatistics)))
        return Measurements((number,), (self.lengths[index],), rows, self._chunks_of[number], np.empty(0))

    def part(self, numbers: Collection[int]) -> Measurements:
        """Those of the audited rollouts with these numbers; what was asked besides stays behind."""
        return self.joined([self.only(index) for index, number in _numbered(self) if number in numbers])

    @property
    def num_tokens(self) -> int:
        return len(self.rows.margins)

    @property
    def margins(self) -> Floats:
        """[N]: clipped distance to the token that the noise draws, 0 for the drawn one itself."""
        return self.rows.margins

    @property
    def logprobs(self) -> Floats:
        """[N]: the model's log-prob of the claimed token (nats, after temperature)."""
        return self.rows.logprobs

    @property
    def eos_probabilities(self) -> Floats:
        """[R]: P(EOS) where the last token was sampled."""
        return self.rows.eos_probabilities[self._ends - 1]

    @cached_property
    def proofs(self) -> ProofErrors:
        """TOPLOC, pooled over the audited rollouts."""
        return ProofErrors.of(self.chunks)

    @cached_property
    def proofs_by_rollout(self) -> dict[int, ProofErrors]:
        """TOPLOC of each audited rollout, by its number in the task."""
        return {number: ProofErrors.of(self._chunks_of[number]) for number in self.rollouts}

    def place(self, index: int) -> tuple[int, int]:
        """Of the token at this place in the arrays: its rollout's number in the task, and its position."""
        which = int(np.searchsorted(self._ends, index, side="right"))
        return self.rollouts[which], index - int(self._ends[which]) + self.lengths[which]

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum(np.array(self.lengths, dtype=np.int64))

    @cached_property
    def _chunks_of(self) -> dict[int, tuple[ChunkResult, ...]]:
        found: dict[int, list[ChunkResult]] = {number: [] for number in self.rollouts}
        for chunk in self.chunks:
            found[chunk.rollout].append(chunk)
        return {number: tuple(chunks) for number, chunks in found.items()}


def _numbered(found: Measurements) -> Iterator[tuple[int, int]]:
    """(place among the audited ones, number in the task) of each rollout."""
    return enumerate(found.rollouts)


def measurements_of(case: Case) -> Measurements:
    """A case's measurements; raises where the model hasn't run, which is a fault of the pipeline's order."""
    if case.measurements is None:
        raise ProofpoolError("a check needs the model and it hasn't run", todo="run checks/prefill.py first")
    return case.measurements


def audited_rollouts(case: Case) -> list[Rollout]:
    """The rows of the file that the measurements are of, in the same order."""
    return [case.rollouts[number] for number in measurements_of(case).rollouts]
