"""The transformers library as a second, independent implementation of the same model: it judges and it decodes.

In: a model folder. Out: `ReferenceModel`, which `checks/prefill.py` takes in place of our own forward pass, and
`ReferenceEngine`, with a decoding loop and a cache that share nothing with ours. Optional: the package is imported
when one of them is made, and `has_transformers` says whether it is there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protocol.engines.base import Completion, Request, require_idle
from protocol.errors import ConfigError, ProofpoolError
from protocol.packing import Packing
from protocol.sampling import draw_tokens, noise_keys
from protocol.weights import ModelConfig
from verifier.calibration.decoding import Decoding
from verifier.calibration.setups import DTYPES, Dtype, Kernel


class ReferenceModel:
    """A causal language model of transformers, called as `protocol/forward.py` is.

    Example: `ReferenceModel(folder, "float32", "eager")(tokens, [5, 7])`, int64 [12] to hidden states [12, H].
    """

    def __init__(self, folder: Path, dtype: Dtype, kernel: Kernel = "auto") -> None:
        self.config = ModelConfig.load(folder)
        self._model = load_transformers(folder, dtype, kernel)

    def __call__(self, tokens: Tensor, lengths: Sequence[int] | Packing) -> Tensor:
        """Whole sequences padded on the right to one batch: hidden states after the final norm, [N, H]."""
        packing = lengths if isinstance(lengths, Packing) else Packing.of(lengths)
        sequences = packing.whole(tokens)
        padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
        is_real = torch.arange(padded.shape[1]) < torch.tensor([len(s) for s in sequences])[:, None]
        found: Tensor = self._model.model(input_ids=padded, attention_mask=is_real.long()).last_hidden_state
        own = [row[len(s) - n : len(s)] for row, s, n in zip(found, sequences, packing.lengths, strict=True)]
        return torch.cat(own)

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._model.lm_head(hidden)
        return logits


class ReferenceEngine:
    """Decodes on transformers, a fixed batch at a time, by our sampling. An `Engine` (`protocol/engines/base.py`)."""

    def __init__(self, max_batch: int, dtype: Dtype, kernel: Kernel = "auto") -> None:
        self._max_batch = max_batch
        self._dtype = dtype
        self._kernel = kernel
        self._model: Any = None
        self._waiting: list[Request] = []

    def load(self, folder: Path) -> None:
        require_idle(self)
        self._model = load_transformers(folder, self._dtype, self._kernel)

    def add(self, requests: Sequence[Request]) -> None:
        if self._model is None:
            raise ProofpoolError("the engine has no weights", "requests before load()")
        self._waiting += requests

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """A batch from its first to its last token."""
        batch = self._waiting[: self._max_batch]
        with _quiet():
            finished = self._decoded([Decoding(request) for request in batch]) if batch else []
        self._waiting = self._waiting[len(batch) :]
        return finished

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def abort(self) -> None:
        self._waiting = []

    def close(self) -> None:
        self.abort()
        self._model = None

    def _decoded(self, batch: Sequence[Decoding]) -> list[Completion]:
        """One batch from its prompts, padded on the left, to its last token."""
        width = max(len(decoding.request.input_tokens) for decoding in batch)
        tokens, mask = (torch.zeros(len(batch), width, dtype=torch.int64) for _ in range(2))
        for row, decoding in enumerate(batch):
            prompt = torch.from_numpy(decoding.request.input_tokens.astype("int64"))
            tokens[row, width - len(prompt) :], mask[row, width - len(prompt) :] = prompt, 1
        cache = None
        while any(decoding.finish_reason is None for decoding in batch):
            positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
            found = self._model.model(
                input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache = found.past_key_values
            tokens = self._drawn(found.last_hidden_state[:, -1], batch)[:, None]
            mask = torch.cat([mask, torch.ones(len(batch), 1, dtype=torch.int64)], dim=1)
        return [decoding.completion(decoding.finish_reason or "length") for decoding in batch]

    def _drawn(self, hidden: Tensor, batch: Sequence[Decoding]) -> Tensor:
        """A token a row, int64 [B], appended where the row isn't finished."""
        tokens = torch.empty(len(batch), dtype=torch.int64)
        logits, rows = self._model.lm_head(hidden).float().numpy(), hidden.bfloat16()
        for place, decoding in enumerate(batch):
            request, row = decoding.request, slice(place, place + 1)
            keys = noise_keys(request.seed, [request.sample], [decoding.position])
            drawn, logprobs = draw_tokens(logits[row], keys, request.sampling)
            tokens[place] = int(drawn[0])
            if decoding.finish_reason is None:
                decoding.append(int(drawn[0]), float(logprobs[0]), rows[place])
        return tokens


def load_transformers(folder: Path, dtype: Dtype, kernel: Kernel) -> Any:
    """The library's own model; raises ConfigError where it isn't installed."""
    attention = "eager" if kernel == "eager" else "sdpa"
    with _quiet():
        try:
            import transformers
        except ImportError as error:
            todo = "pip install transformers, or leave `transformers` out of --generators and --judges"
            raise ConfigError("the transformers library isn't installed", str(error), todo) from error
        library: Any = transformers  # it has hardly any types
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
        loader = library.AutoModelForCausalLM
        return loader.from_pretrained(folder, dtype=DTYPES[dtype], attn_implementation=attention).eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's notices of optional packages and of names that are to change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
