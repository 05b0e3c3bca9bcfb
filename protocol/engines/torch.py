"""Our own decoding loop on torch: continuous batching over a paged cache, seeded sampling, hidden rows as they come.

    add ──▶ waiting requests ──admit──▶ rows, each with a table of blocks
    rows, and the tokens of distinct new prompts ──decoder.step──▶ hidden [B, H]
    hidden of rows ──logits──▶ draw_rows ──▶ rows grow by a token
    finished rows ──▶ Completion;  their slots and blocks are free, waiting requests take them at the next step

In: a model folder and requests. Out: completions as they finish. Deterministic for given weights,
requests and `max_batch`, on one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protocol.engines.base import Completion, Request, require_idle
from protocol.engines.decoder import Decoder
from protocol.engines.paged_cache import BLOCK_TOKENS, Blocks, PagedCache, num_blocks
from protocol.engines.parts import Indices
from protocol.engines.places import LOAD, Update, require_same_model
from protocol.engines.rows import Rows, Slots
from protocol.engines.shared_prompts import SharedPrompt, SharedPrompts, num_own_blocks
from protocol.errors import ProofpoolError, RolloutTooLong
from protocol.forward import CausalLM
from protocol.heap import return_holes
from protocol.sampling import Float32Array, Tokens
from protocol.sampling_torch import draw_rows
from protocol.shardcast.patches import TensorChanges, decode_chain
from protocol.weights import ModelConfig, load_weights
from protocol.weights_parts import WEIGHTS_FILE

MAX_CACHE_TOKENS = 1 << 16


class TorchEngine:
    """The engine for CPUs, and the reference for others.

    Up to `max_batch` rollouts decode together, and their keys and values are of `max_cache_tokens` at most, at the
    longest that they may become: others wait. Example::

        engine = TorchEngine(max_batch=64)
        engine.load(folder)
        for completion in generate(engine, requests): ...
    """

    def __init__(
        self, max_batch: int = 64, dtype: torch.dtype = torch.float32, max_cache_tokens: int = MAX_CACHE_TOKENS
    ) -> None:
        self._max_batch = max_batch
        self._dtype = dtype
        self._max_cache_tokens = max_cache_tokens
        self._batch: Batch | None = None
        self._folder: Path | None = None
        """What was loaded; None where the weights are no folder's."""

    def load(self, folder: Path) -> None:
        require_idle(self)
        self._take(Decoder(ModelConfig.load(folder), load_weights(folder), self._dtype))
        self._folder = folder
        return_holes()

    def apply(self, patches: Sequence[Path], folder: Path) -> None:
        require_idle(self)
        if self._batch is None or self._folder is None:
            raise ProofpoolError("the engine has no weights that a patch could be for", "apply() before load()", LOAD)
        require_same_model(self._folder, folder)
        update = self._batch.update(decode_chain(self._folder / WEIGHTS_FILE, patches))
        try:
            self._batch.clear()  # keys and values of the old weights
            update.write()
        except BaseException:
            self.close()  # half of a version must not be generated with
            raise
        self._folder = folder

    def use(self, model: CausalLM) -> None:
        """Take a loaded model's weights, in its precision. Raises ProofpoolError while there is work."""
        require_idle(self)
        self._folder = None
        self._take(Decoder(model.config, model.weights(), model.model.norm.weight.dtype))

    def add(self, requests: Sequence[Request]) -> None:
        if self._batch is None:
            raise ProofpoolError("the engine has no weights", "requests before load()")
        self._batch.add(requests)

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
        self._batch = self._folder = None

    def _take(self, decoder: Decoder) -> None:
        self._batch = Batch(decoder, self._max_batch, self._max_cache_tokens)


class Batch:
    """The rows that decode together, and the requests that wait for room."""

    def __init__(self, decoder: Decoder, max_batch: int, max_cache_tokens: int) -> None:
        self._decoder = decoder
        self._max_batch = max_batch
        self._cache = PagedCache(decoder.config, max_cache_tokens, decoder.cache_dtype)
        self._waiting: deque[Request] = deque()
        self.clear()

    def clear(self) -> None:
        """Without any requests."""
        self._waiting.clear()
        self._cache.reset()
        self._prompts = SharedPrompts(self._decoder, self._cache)
        self._rows = Rows(self._max_batch, self._decoder.config.hidden_size)
        self._claims: dict[int, tuple[SharedPrompt, Blocks]] = {}  # by slot
        self._tables = np.zeros((self._max_batch, 0), dtype=np.uint64)

    def update(self, changes: Sequence[TensorChanges]) -> Update:
        """Changes, ready to be written into the weights. Raises VerificationFailed where they don't fit."""
        return Update(changes, self._decoder.places(), self._decoder.dtype)

    def add(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if not len(request.input_tokens):
                raise ProofpoolError("a prompt without tokens can't be continued", f"sample {request.sample}")
            most = num_blocks(len(request.input_tokens)) + num_own_blocks(request)
            if most > self._cache.num_blocks:
                limit = self._cache.num_blocks * BLOCK_TOKENS
                what = f"{most * BLOCK_TOKENS} tokens of keys and values against {limit}"
                raise RolloutTooLong("a rollout may outgrow the cache", what, "raise `max_cache_tokens`")
        self._waiting.extend(requests)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting) or len(self._rows.active) > 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """One more token a row; the completions that it finished."""
        running = self._rows.active
        claims = self._admit()
        hidden = self._advance(running, self._prompts.new())
        if claims:
            self._prompts.fill(claims)
            hidden = torch.cat([hidden, torch.stack([prompt.state for prompt, _ in claims])])
        finished = self._rows.append(*self._draw(hidden), hidden)
        self._dismiss(finished)
        return finished

    def _advance(self, running: Slots, prompts: Sequence[SharedPrompt]) -> Tensor:
        """Hidden states [B, H] after the running rows' last tokens; the prompts go through in the same pass."""
        rows, parts = self._rows, [prompt.as_rows() for prompt in prompts]
        tokens = np.concatenate([*(tokens for tokens, _ in parts), rows.last_tokens[running]])
        if not len(tokens):
            return torch.empty(0, self._decoder.config.hidden_size, dtype=self._decoder.dtype)
        positions = np.concatenate([*(positions for _, positions in parts), rows.num_cached[running]])
        tables, slots = self._with_tables(prompts, running)
        hidden = self._decoder.step(
            torch.from_numpy(tokens), self._cache, tables, slots.astype(np.uint64), positions.astype(np.uint64)
        )
        rows.num_cached[running] += 1
        end = 0
        for prompt in prompts:
            end += len(prompt.request.input_tokens)
            prompt.hidden = hidden[end - 1]
        return hidden[end:]

    def _with_tables(self, prompts: Sequence[SharedPrompt], running: Slots) -> tuple[Indices, Slots]:
        """The rows' tables with those of prompts below them, and the row of these that each token is of."""
        if not prompts:
            return self._tables, running
        width = max(self._tables.shape[1], *(len(prompt.blocks) for prompt in prompts))
        tables = np.zeros((self._max_batch + len(prompts), width), dtype=np.uint64)
        tables[: self._max_batch, : self._tables.shape[1]] = self._tables
        for number, prompt in enumerate(prompts, self._max_batch):
            tables[number, : len(prompt.blocks)] = prompt.blocks
        lengths = [len(prompt.request.input_tokens) for prompt in prompts]
        own = np.repeat(np.arange(self._max_batch, self._max_batch + len(prompts)), lengths)
        return tables, np.concatenate([own, running])

    def _admit(self) -> list[tuple[SharedPrompt, Blocks]]:
        """Let waiting requests in, first come first served."""
        claims = []
        while self._waiting and self._rows.num_free:
            if self._prompts.num_needed(self._waiting[0]) > self._cache.num_free:
                break
            request = self._waiting.popleft()
            claim = self._prompts.claim(request)
            self._seat(request, claim)
            claims.append(claim)
        return claims

    def _seat(self, request: Request, claim: tuple[SharedPrompt, Blocks]) -> None:
        slot, (prompt, own) = self._rows.seat(request), claim
        table = prompt.blocks[: prompt.num_full] + own
        more = len(table) - self._tables.shape[1]
        if more > 0:
            self._tables = np.pad(self._tables, ((0, 0), (0, more)))
        self._tables[slot, : len(table)] = table
        self._claims[slot] = claim

    def _draw(self, hidden: Tensor) -> tuple[Tokens, Float32Array]:
        """Each row's next token and its log-prob."""
        logits, keys = self._decoder.logits(hidden), self._rows.keys()
        if len(self._rows.by_rules) == 1:
            return draw_rows(logits, keys, self._rows.by_rules[0][0])
        tokens, logprobs = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.float32)
        for sampling, places in self._rows.by_rules:
            tokens[places], logprobs[places] = draw_rows(logits[torch.from_numpy(places)], keys[places], sampling)
        return tokens, logprobs

    def _dismiss(self, finished: Sequence[Completion]) -> None:
        """Give the slots and blocks of finished rows back."""
        if finished:
            slots = [self._rows.slot_of(completion.request) for completion in finished]
            for slot in slots:
                self._prompts.release(*self._claims.pop(slot))
            self._rows.leave(slots)
