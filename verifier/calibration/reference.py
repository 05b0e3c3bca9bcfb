"""The transformers library as a second, independent implementation of the same model: it judges and it decodes.

In: a model folder. Out: `ReferenceModel`, which `checks/prefill.py` takes in place of our own forward pass, and
`ReferenceEngine`, with a decoding loop and a cache that share nothing with ours. Optional: the package is imported
when one of them is made, and `has_transformers` says whether it is there.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protocol.engines.base import Completion, Request
from protocol.engines.sequence import Sequence as Decoding
from protocol.errors import ConfigError, ProofpoolError
from protocol.packing import Packing
from protocol.rules import SamplingRules
from protocol.sampling import draw_tokens, noise_keys
from protocol.weights import ModelConfig
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

    def load(self, folder: Path) -> None:
        self._model = load_transformers(folder, self._dtype, self._kernel)

    @torch.inference_mode()
    def generate(
        self, requests: Sequence[Request], seed: bytes, sampling: SamplingRules, eos_ids: Collection[int]
    ) -> Iterator[Completion]:
        if self._model is None:
            raise ProofpoolError("the engine has no weights", "generate() before load()")
        for start in range(0, len(requests), self._max_batch):
            batch = requests[start : start + self._max_batch]
            waiting = [Decoding(request, frozenset(eos_ids), sampling.max_new_tokens) for request in batch]
            with _quiet():
                yield from self._decoded(waiting, seed, sampling)

    def _decoded(self, batch: Sequence[Decoding], seed: bytes, sampling: SamplingRules) -> list[Completion]:
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
            tokens = self._drawn(found.last_hidden_state[:, -1], batch, seed, sampling)[:, None]
            mask = torch.cat([mask, torch.ones(len(batch), 1, dtype=torch.int64)], dim=1)
        return [decoding.completion(decoding.finish_reason or "length") for decoding in batch]

    def _drawn(self, hidden: Tensor, batch: Sequence[Decoding], seed: bytes, sampling: SamplingRules) -> Tensor:
        """A token a row, int64 [B], appended where the row isn't finished."""
        keys = noise_keys(seed, [d.request.sample for d in batch], [d.position for d in batch])
        tokens, logprobs = draw_tokens(self._model.lm_head(hidden).float().numpy(), keys, sampling)
        rows = hidden.bfloat16().unbind(0)
        for decoding, token, logprob, row in zip(batch, tokens.tolist(), logprobs.tolist(), rows, strict=True):
            if decoding.finish_reason is None:
                decoding.append(token, logprob, row)
        return torch.from_numpy(tokens)


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
