"""The rows that decode together, and what each has drawn so far, in arrays: a step costs no loop over them.

A row has a slot from when it is seated until its completion is taken; `active` lists the slots in use. In: requests,
then a token, a log-prob and a hidden state a row and step. Out: completions.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from protocol.engines.base import Completion, Request
from protocol.rules import SamplingRules
from protocol.sampling import Float32Array, Keys, Tokens, noise_keys

Slots = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]
"""Numbers of rows among the active ones."""
NO_TOKEN = -1

Value = TypeVar("Value", bound=Hashable)
AnyArray = TypeVar("AnyArray", bound=npt.NDArray[Any])


class Rows:
    """Arrays over slots, whose rows are those of `active`, in the order in which they were seated."""

    def __init__(self, num_slots: int, hidden_size: int) -> None:
        self.active: Slots = np.empty(0, dtype=np.int64)
        self.num_cached = np.zeros(num_slots, dtype=np.int64)
        """Tokens of each row whose keys and values are in the cache."""
        self.last_tokens: Tokens = np.zeros(num_slots, dtype=np.int64)
        self._num_drawn = np.zeros(num_slots, dtype=np.int64)
        self._limits = np.zeros(num_slots, dtype=np.int64)
        self._samples = np.zeros(num_slots, dtype=np.int64)
        self._eos_ids = np.full((num_slots, 1), NO_TOKEN, dtype=np.int64)
        self._requests: dict[int, Request] = {}
        self._free = list(range(num_slots - 1, -1, -1))
        self._tokens = np.zeros((num_slots, 0), dtype=np.int32)
        self._logprobs = np.zeros((num_slots, 0), dtype=np.float32)
        self._hidden = np.zeros((num_slots, 0, hidden_size), dtype=np.int16)  # the bits of bf16, which numpy lacks
        self._by_seed: list[tuple[bytes, Places]] | None = None
        self._by_rules: list[tuple[SamplingRules, Places]] | None = None

    @property
    def num_free(self) -> int:
        return len(self._free)

    def seat(self, request: Request) -> int:
        """A free slot for a request, whose prompt is in the cache."""
        slot = self._free.pop()
        self._requests[slot] = request
        self.num_cached[slot], self._num_drawn[slot] = len(request.input_tokens), 0
        self._limits[slot], self._samples[slot] = request.sampling.max_new_tokens, request.sample
        self._make_room(request)
        self._eos_ids[slot] = NO_TOKEN
        self._eos_ids[slot, : len(request.eos_ids)] = sorted(request.eos_ids)
        self._change(np.append(self.active, slot))
        return slot

    def keys(self) -> Keys:
        """The noise of each active row's next token."""
        keys = np.empty(len(self.active), dtype=np.uint64)
        samples, positions = self._samples[self.active], self._num_drawn[self.active]
        if self._by_seed is None:
            self._by_seed = _grouped([self._requests[slot].seed for slot in self.active.tolist()])
        for seed, places in self._by_seed:
            keys[places] = noise_keys(seed, samples[places].tolist(), positions[places].tolist())
        return keys

    @property
    def by_rules(self) -> Sequence[tuple[SamplingRules, Places]]:
        """The active rows that draw by the same rules, whatever their lengths may become."""
        if self._by_rules is None:
            rules = [self._requests[slot].sampling for slot in self.active.tolist()]
            groups = _grouped([(one.temperature, one.top_k, one.top_p) for one in rules])
            self._by_rules = [(rules[places[0]], places) for _, places in groups]
        return self._by_rules

    def append(self, tokens: Tokens, logprobs: Float32Array, hidden: Tensor) -> list[Completion]:
        """One more token an active row, and the hidden states [B, H] that they were drawn from; what that finishes."""
        slots, positions = self.active, self._num_drawn[self.active]
        self._tokens[slots, positions], self._logprobs[slots, positions] = tokens, logprobs
        self._hidden[slots, positions] = hidden.bfloat16().view(torch.int16).numpy()
        self.last_tokens[slots] = tokens
        self._num_drawn[slots] = positions + 1
        stopped = (self._eos_ids[slots] == tokens[:, None]).any(axis=1)
        ended = stopped | (positions + 1 >= self._limits[slots])
        if not ended.any():
            return []
        return [
            self._completion(int(slots[place]), "stop" if stopped[place] else "length")
            for place in np.flatnonzero(ended)
        ]

    def leave(self, slots: Sequence[int]) -> None:
        """Free the slots of completed rows."""
        for slot in slots:
            del self._requests[slot]
            self._free.append(slot)
        self._change(self.active[~np.isin(self.active, slots)])

    def slot_of(self, request: Request) -> int:
        return next(slot for slot, seated in self._requests.items() if seated is request)

    def _completion(self, slot: int, finish_reason: str) -> Completion:
        count = int(self._num_drawn[slot])
        return Completion(
            request=self._requests[slot],
            output_tokens=self._tokens[slot, :count].copy(),
            output_logprobs=self._logprobs[slot, :count].copy(),
            hidden_rows=torch.from_numpy(self._hidden[slot, :count].copy()).view(torch.bfloat16),
            finish_reason=finish_reason,
        )

    def _change(self, active: Slots) -> None:
        self.active, self._by_seed, self._by_rules = active, None, None

    def _make_room(self, request: Request) -> None:
        """Longer completions, or more EOS tokens, than any row before."""
        more = request.sampling.max_new_tokens - self._tokens.shape[1]
        if more > 0:
            self._tokens = _wider(self._tokens, more)
            self._logprobs = _wider(self._logprobs, more)
            self._hidden = _wider(self._hidden, more)
        more = len(request.eos_ids) - self._eos_ids.shape[1]
        if more > 0:
            self._eos_ids = np.pad(self._eos_ids, ((0, 0), (0, more)), constant_values=NO_TOKEN)


def _wider(array: AnyArray, more: int) -> AnyArray:
    """With so many further columns, whose memory isn't used before they are written."""
    wider = np.zeros((array.shape[0], array.shape[1] + more, *array.shape[2:]), dtype=array.dtype)
    wider[:, : array.shape[1]] = array
    return cast(AnyArray, wider)


def _grouped(values: Sequence[Value]) -> list[tuple[Value, Places]]:
    """Each different value with the places where it stands."""
    places: dict[Value, list[int]] = {}
    for place, value in enumerate(values):
        places.setdefault(value, []).append(place)
    return [(value, np.array(found)) for value, found in places.items()]
