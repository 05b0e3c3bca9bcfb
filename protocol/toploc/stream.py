"""Proofs while decoding: rows of many sequences go in, each 32 of one make a proof.

    stream = ProofStream(num_sequences=256, hidden_size=128)
    stream.push(last_prompt_states)               # [256, H]: row 0 of each, the state that gave token 0
    stream.push(states, alive)                    # [n, H] of the sequences still running, each step
    columns = stream.finish()                     # 256 `proofs` columns

Sequences of a batch fill their chunks at the same step, so that each build is one call over all of
them. Only the open chunks are kept: num_sequences x 32 x H x 2 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from protocol.errors import ProofpoolError
from protocol.toploc.activations import Activations, bf16_patterns
from protocol.toploc.build import build_chunks, build_rollouts
from protocol.toploc.encoding import CHUNK_ROWS, TOPK
from protocol.toploc.paths import Piece
from protocol.toploc.topk import Bits, Ties


class ProofStream:
    """Rows of `num_sequences` rollouts, and the proofs of their finished chunks."""

    def __init__(
        self,
        num_sequences: int,
        hidden_size: int,
        *,
        chunk_rows: int = CHUNK_ROWS,
        topk: int = TOPK,
        ties: Ties = "lowest",
    ) -> None:
        if hidden_size < topk:
            raise ProofpoolError(
                "hidden states are too narrow", f"{hidden_size} values a row, topk {topk}", "lower topk"
            )
        self.topk = topk
        self.ties: Ties = ties
        self._rows = np.zeros((num_sequences, chunk_rows, hidden_size), dtype=np.uint16)
        self._num_rows = np.zeros(num_sequences, dtype=np.int64)
        self._columns = [bytearray() for _ in range(num_sequences)]

    def push(self, rows: Activations, sequences: Sequence[int] | npt.NDArray[np.int64] | None = None) -> None:
        """The next row of each named sequence (of all, without `sequences`): bf16 [n, H], or [H] for one.

        Raises ProofpoolError for a wrong shape or type, a sequence named twice or that isn't there,
        and for a full chunk with values that aren't finite.
        """
        bits = bf16_patterns(rows)
        bits = bits[None] if bits.ndim == 1 else bits
        places = np.arange(len(self._rows)) if sequences is None else np.asarray(sequences, dtype=np.int64)
        self._check_push(bits, places)
        self._rows[places, self._num_rows[places]] = bits
        self._num_rows[places] += 1
        self._build_full(places[self._num_rows[places] == self._rows.shape[1]])

    def extend(self, sequence: int, rows: Activations) -> None:
        """The next n rows [n, H] of one sequence."""
        for row in bf16_patterns(rows):
            self.push(row, [sequence])

    def finish(self) -> list[bytes]:
        """The `proofs` column of each sequence, its last chunk however short; b"" where no row came.

        Ends the stream's rollouts: what is pushed afterwards begins new ones.
        """
        open_places = np.flatnonzero(self._num_rows)
        rest = [self._rows[place, : self._num_rows[place]] for place in open_places]
        built = build_rollouts(rest, chunk_rows=self._rows.shape[1], topk=self.topk, ties=self.ties)
        for place, proof in zip(open_places, built, strict=True):
            self._columns[place] += proof
        columns = [bytes(column) for column in self._columns]
        self._num_rows[:] = 0
        self._columns = [bytearray() for _ in columns]
        return columns

    def _build_full(self, places: npt.NDArray[np.int64]) -> None:
        if not len(places):
            return
        chunks = Piece(self._rows[places].reshape(-1), self._rows[0].size)
        for place, proof in zip(places, build_chunks([chunks], self.topk, self.ties), strict=True):
            self._columns[place] += proof
        self._num_rows[places] = 0

    def _check_push(self, bits: Bits, places: npt.NDArray[np.int64]) -> None:
        shape = (len(places), self._rows.shape[2])
        known = places.ndim == 1 and bool(((places >= 0) & (places < len(self._rows))).all())
        if bits.shape != shape or not known or len(np.unique(places)) != len(places):
            why = f"{bits.shape} rows for sequences {places.tolist()[:8]} of {len(self._rows)}"
            raise ProofpoolError("rows don't fit the stream", why, f"push one row of {shape[1]} values a sequence")
