"""Proofs while decoding: rows of many sequences go in, each 32 of one make a proof.

    stream = ProofStream(num_sequences=256, hidden_size=128)
    stream.push(last_prompt_states)               # [256, H]: row 0 of each, the state that gave token 0
    stream.push(states, alive)                    # [n, H] of the sequences still running, each step
    columns = stream.finish()                     # 256 `proofs` columns

Sequences of a batch fill their chunks at the same step, so that each build is one call over all of
them. Only the open chunks are kept: num_sequences x 32 x H x 2 bytes; on the GPU, if the rows are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.errors import ProofpoolError
from protocol.toploc import device
from protocol.toploc.activations import Activations, bf16_patterns, require_bfloat16
from protocol.toploc.build import build_rollouts
from protocol.toploc.encoding import CHUNK_ROWS, TOPK, proof_bytes
from protocol.toploc.topk import Ties


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
        self._rows: Any = np.zeros((num_sequences, chunk_rows, hidden_size), dtype=np.uint16)
        self._num_rows = np.zeros(num_sequences, dtype=np.int64)
        self._columns = [bytearray() for _ in range(num_sequences)]

    def push(self, rows: Activations, sequences: Sequence[int] | npt.NDArray[np.int64] | None = None) -> None:
        """The next row of each named sequence (of all, without `sequences`): bf16 [n, H], or [H] for one.

        Raises ProofpoolError for a wrong shape or type, a sequence named twice or that isn't there,
        and for a full chunk with values that aren't finite.
        """
        self._push(self._as_kept(rows), sequences)

    def extend(self, sequence: int, rows: Activations) -> None:
        """The next n rows [n, H] of one sequence."""
        for row in self._as_kept(rows):
            self._push(row, [sequence])

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

    def _push(self, states: Any, sequences: Sequence[int] | npt.NDArray[np.int64] | None) -> None:
        states = states[None] if states.ndim == 1 else states
        places = np.arange(len(self._rows)) if sequences is None else np.asarray(sequences, dtype=np.int64)
        self._check_push(states, places)
        self._rows[places, self._num_rows[places]] = states
        self._num_rows[places] += 1
        self._build_full(places[self._num_rows[places] == self._rows.shape[1]])

    def _build_full(self, places: npt.NDArray[np.int64]) -> None:
        if not len(places):
            return
        chunks = self._rows[places].reshape(-1, self._rows.shape[2])
        column = build_rollouts([chunks], chunk_rows=self._rows.shape[1], topk=self.topk, ties=self.ties)[0]
        size = proof_bytes(self.topk)
        for number, place in enumerate(places):
            self._columns[place] += column[number * size : (number + 1) * size]
        self._num_rows[places] = 0

    def _as_kept(self, rows: Activations) -> Any:
        """Rows in the form of the open chunks: bit patterns, or tensors where rows come from a GPU."""
        on_device = device.is_remote(rows)
        if on_device == isinstance(self._rows, np.ndarray) and not self._num_rows.any():
            shape = self._rows.shape
            self._rows = rows.new_zeros(shape) if device.is_remote(rows) else np.zeros(shape, dtype=np.uint16)
        if isinstance(self._rows, np.ndarray):
            return bf16_patterns(rows)
        if not on_device:
            raise ProofpoolError("rows of one chunk are on two devices", "a GPU and the CPU", "push from one of them")
        require_bfloat16(rows)
        return rows

    def _check_push(self, states: Any, places: npt.NDArray[np.int64]) -> None:
        shape = (len(places), self._rows.shape[2])
        known = places.ndim == 1 and bool(((places >= 0) & (places < len(self._rows))).all())
        if tuple(states.shape) != shape or not known or len(np.unique(places)) != len(places):
            why = f"{tuple(states.shape)} rows for sequences {places.tolist()[:8]} of {len(self._rows)}"
            raise ProofpoolError("rows don't fit the stream", why, f"push one row of {shape[1]} values a sequence")
