"""Our own decoding loop on torch: continuous batching, seeded sampling, hidden rows as they come.

    waiting requests ──admit: one prefill per distinct prompt──▶ running rows + key-value cache
    running rows ──model.step──▶ hidden [B, H] ──logits──▶ draw_rows ──▶ sequences grow
    finished sequences ──▶ Completion;  their rows leave the cache, waiting ones take the room

In: a model folder and requests. Out: completions as they finish. Deterministic for given weights,
requests and `max_batch`, on one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Sequence as Ordered
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protocol.engines.base import Completion, Request
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
        for completion in engine.generate(requests, seed, rules.sampling): ...
    """

    def __init__(self, max_batch: int = 64, dtype: torch.dtype = torch.float32) -> None:
        self._max_batch = max_batch
        self._dtype = dtype
        self._model: CausalLM | None = None

    def load(self, folder: Path) -> None:
        self._model = CausalLM.load(folder, self._dtype).eval()

    def generate(
        self, requests: Ordered[Request], seed: bytes, sampling: SamplingRules, eos_ids: Collection[int]
    ) -> Iterator[Completion]:
        if self._model is None:
            raise ProofpoolError("the engine has no weights", "generate() before load()")
        sequences = [Sequence(request, frozenset(eos_ids), sampling.max_new_tokens) for request in requests]
        batch = Batch(self._model, sequences, seed, sampling, self._max_batch)
        while batch.has_work:
            yield from batch.step()


class Batch:
    """The rows that decode together, and the requests that wait for room."""

    def __init__(
        self, model: CausalLM, waiting: list[Sequence], seed: bytes, sampling: SamplingRules, max_batch: int
    ) -> None:
        self._model = model
        self._seed = seed
        self._sampling = sampling
        self._max_batch = max_batch
        self._waiting = waiting
        self._running: list[Sequence] = []  # one a row of the cache; finished ones stay until `_compact`
        longest = max((len(sequence.request.input_tokens) for sequence in waiting), default=0)
        self._width = longest + sampling.max_new_tokens
        self._cache = KvCache(model.config, 0, self._width, like=model.model.norm.weight)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting) or bool(self._alive())

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
        hidden, cache = self._model.prefill(tokens, packing.lengths, self._width)
        cache.keep(torch.tensor(places))
        self._cache.extend(cache)
        self._running += admitted
        return hidden[packing.last_rows][places]

    def _draw(self, hidden: Tensor, alive: list[int]) -> None:
        """Append a token to each living row from its hidden state, which a proof wants as bf16."""
        sequences = [self._running[row] for row in alive]
        living = hidden[alive]
        keys = noise_keys(self._seed, [s.request.sample for s in sequences], [s.position for s in sequences])
        tokens, logprobs = draw_rows(self._model.logits(living), keys, self._sampling)
        rows = living.bfloat16().unbind(0)
        for sequence, token, logprob, row in zip(sequences, tokens.tolist(), logprobs.tolist(), rows, strict=True):
            sequence.append(token, logprob, row)

    def _finish(self, rows: list[int]) -> list[Completion]:
        finished = []
        for row in rows:
            reason = self._running[row].finish_reason
            if reason is not None:
                finished.append(self._running[row].completion(reason))
                # An idle row still takes part in each step: from position 0 again it can't outgrow the cache.
                self._cache.lengths[row] = 0
        return finished
