"""Our own decoding loop on torch: continuous batching, seeded sampling, hidden rows as they come.

    add ──▶ waiting requests ──admit: one prefill per distinct prompt──▶ running rows + key-value cache
    running rows ──model.step──▶ hidden [B, H] ──logits──▶ draw_rows ──▶ sequences grow
    finished sequences ──▶ Completion;  their rows leave the cache, waiting ones take the room

In: a model folder and requests. Out: completions as they finish. Deterministic for given weights,
requests and `max_batch`, on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protocol.engines.base import Completion, Request, require_idle
from protocol.engines.sequence import Sequence
from protocol.errors import ProofpoolError
from protocol.forward import CausalLM
from protocol.kv_cache import KvCache
from protocol.packing import Packing
from protocol.rules import SamplingRules
from protocol.sampling import noise_keys
from protocol.sampling_torch import draw_rows
from protocol.states import distinct

COMPACT_SHARE = 0.75
"""Finished rows stay in the batch until so few are alive: copying the cache costs more than some idle rows."""


class TorchEngine:
    """The engine for CPUs, and the reference for others.

    Example::

        engine = TorchEngine(max_batch=64)
        engine.load(folder)
        for completion in generate(engine, requests): ...
    """

    def __init__(self, max_batch: int = 64, dtype: torch.dtype = torch.float32) -> None:
        self._max_batch = max_batch
        self._dtype = dtype
        self._batch: Batch | None = None

    def load(self, folder: Path) -> None:
        require_idle(self)
        self.use(CausalLM.load(folder, self._dtype).eval())

    def use(self, model: CausalLM) -> None:
        """Take a model that is loaded already. Raises ProofpoolError while there is work."""
        require_idle(self)
        self._batch = Batch(model, self._max_batch)

    def add(self, requests: Ordered[Request]) -> None:
        if self._batch is None:
            raise ProofpoolError("the engine has no weights", "requests before load()")
        self._batch.add([Sequence(request) for request in requests])

    def step(self) -> list[Completion]:
        return self._batch.step() if self._batch is not None and self._batch.has_work else []

    @property
    def has_work(self) -> bool:
        return self._batch is not None and self._batch.has_work

    @property
    def num_waiting(self) -> int:
        return 0 if self._batch is None else self._batch.num_waiting

    def abort(self) -> None:
        if self._batch is not None:
            self._batch.clear()

    def close(self) -> None:
        self._batch = None


class Batch:
    """The rows that decode together, and the requests that wait for room."""

    def __init__(self, model: CausalLM, max_batch: int) -> None:
        self._model = model
        self._max_batch = max_batch
        self.clear()

    def clear(self) -> None:
        """Without any requests."""
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []  # one a row of the cache; finished ones stay until `_compact`
        self._cache = KvCache(self._model.config, 0, 0, like=self._model.model.norm.weight)

    def add(self, sequences: Ordered[Sequence]) -> None:
        self._waiting += sequences

    @property
    def has_work(self) -> bool:
        return bool(self._waiting) or bool(self._alive())

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """One more token a row; the completions that it finished."""
        self._compact()
        hidden = self._advance()
        if self._waiting and len(self._running) < self._max_batch:
            hidden = torch.cat([hidden, self._admit()])
        alive = self._alive()
        self._draw(hidden, alive)
        return self._finish(alive)

    def _alive(self) -> list[int]:
        return [row for row, sequence in enumerate(self._running) if sequence.finish_reason is None]

    def _compact(self) -> None:
        """Give up the rows of finished sequences, where there are enough of them to be worth the copy."""
        alive = self._alive()
        if self._running and len(alive) <= COMPACT_SHARE * len(self._running):
            self._cache.keep(torch.tensor(alive, dtype=torch.int64))
            self._running = [self._running[row] for row in alive]

    def _advance(self) -> Tensor:
        """Hidden states [B, H] after the running rows' last tokens."""
        if not self._running:
            return self._model.model.norm.weight.new_empty(0, self._model.config.hidden_size)
        return self._model.step(torch.tensor([sequence.tokens[-1] for sequence in self._running]), self._cache)

    def _admit(self) -> Tensor:
        """Let waiting requests in; hidden states [A, H] after their prompts."""
        room = self._max_batch - len(self._running)
        admitted, self._waiting = self._waiting[:room], self._waiting[room:]
        prompts, places = distinct([sequence.request.input_tokens for sequence in admitted])
        packing = Packing.of([len(prompt) for prompt in prompts])
        tokens = torch.from_numpy(np.concatenate(prompts).astype(np.int64))
        self._cache.widen(max(sequence.max_length for sequence in admitted))
        hidden, cache = self._model.prefill(tokens, packing.lengths, self._cache.max_length)
        cache.keep(torch.tensor(places))
        self._cache.extend(cache)
        self._running += admitted
        return hidden[packing.last_rows][places]

    def _draw(self, hidden: Tensor, alive: list[int]) -> None:
        """Append a token to each living row from its hidden state, which a proof wants as bf16."""
        sequences = [self._running[row] for row in alive]
        living = hidden[alive]
        logits, rows = self._model.logits(living), living.bfloat16().unbind(0)
        for sampling, places in _by_rules(sequences).items():
            drawing = [sequences[place] for place in places]
            keys = [noise_keys(s.request.seed, [s.request.sample], [s.position]) for s in drawing]
            tokens, logprobs = draw_rows(logits[places], np.concatenate(keys), sampling)
            for place, token, logprob in zip(places, tokens.tolist(), logprobs.tolist(), strict=True):
                sequences[place].append(token, logprob, rows[place])

    def _finish(self, rows: list[int]) -> list[Completion]:
        finished = []
        for row in rows:
            reason = self._running[row].finish_reason
            if reason is not None:
                finished.append(self._running[row].completion(reason))
                # An idle row still takes part in each step: from position 0 again it can't outgrow the cache.
                self._cache.lengths[row] = 0
        return finished


def _by_rules(sequences: Ordered[Sequence]) -> dict[SamplingRules, list[int]]:
    """The places of the sequences that draw by the same rules."""
    places: dict[SamplingRules, list[int]] = {}
    for place, sequence in enumerate(sequences):
        places.setdefault(sequence.request.sampling, []).append(place)
    return places
