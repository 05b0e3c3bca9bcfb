"""How fast the torch engine decodes: against `generate()` of transformers, and what proofs, seeds and log-probs cost.

In: the tiny base model and SmolLM2 (fetched once), float32, one thread. Out: on stdout, medians over rounds that
alternate between the ways, of tokens per CPU-second of this process, so that a busy machine slows all ways alike.
Rollouts of mixed length: how long each becomes is drawn beforehand and the same for every way. Our engine takes it as
`max_new_tokens` of each request; `generate()` as a StoppingCriteria that ends each row at its own length, padded on
the left, sampling at temperature 1 from the whole vocabulary, at each batch size, of which the best one counts.
Groups of 8 share a prompt. Two loads: 32 rollouts at once, and a stream, of which our engine decodes 32 at a time.
About 10 minutes on two idle cores.

python -m pytest -m bench -s tests/bench/test_bench_engine.py
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from protocol.engines.base import Completion, Request, generate
from protocol.engines.decoder import Decoder
from protocol.engines.rows import Rows
from protocol.engines.torch import MAX_CACHE_TOKENS, Batch, TorchEngine
from protocol.prover import proofs_of
from protocol.rules import SamplingRules, ToplocRules
from protocol.sampling import Float32Array, Tokens
from protocol.weights import ModelConfig, load_weights
from tests.unit.verifier.verifier_world import BASE_MODEL
from verifier.calibration.reference import load_transformers

pytestmark = pytest.mark.bench

CONCURRENT, GROUP_SIZE, SEED = 32, 8, bytes(32)


@dataclass(frozen=True)
class Load:
    """Rollouts to generate: prompts of `prompt_tokens`, completions of `lengths`, both uniform in their bounds."""

    name: str
    num_rollouts: int
    prompt_tokens: tuple[int, int]
    lengths: tuple[int, int]
    batch_sizes: tuple[int, ...]
    rounds: int
    needed: float | None = None

    def requests(self, vocab_size: int) -> list[Request]:
        source = np.random.default_rng(1)
        sizes = source.integers(*self.prompt_tokens, size=self.num_rollouts // GROUP_SIZE)
        prompts = [source.integers(3, vocab_size, size).astype(np.int32) for size in sizes]
        lengths = source.integers(self.lengths[0], self.lengths[1] + 1, self.num_rollouts)
        return [
            Request(SEED, i, prompts[i // GROUP_SIZE], SamplingRules(max_new_tokens=int(length)), frozenset())
            for i, length in enumerate(lengths)
        ]


TINY = (
    Load("tiny, 32 at once", 32, (10, 20), (8, 64), (8, 16, 32), 7, needed=4),
    Load("tiny, a stream of 256", 256, (10, 20), (8, 64), (32, 64, 128, 256), 3),
)
SMOLLM2 = (Load("SmolLM2, 32 at once", 32, (40, 80), (16, 64), (8, 16, 32), 3, needed=2),)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["tiny", "smollm2"])
def model(request: pytest.FixtureRequest) -> tuple[Path, tuple[Load, ...]]:
    if request.param == "tiny":
        return BASE_MODEL, TINY
    return request.getfixturevalue("smollm2_folder"), SMOLLM2


def cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def test_rate_against_transformers(model: tuple[Path, tuple[Load, ...]]) -> None:
    folder, loads = model
    ratios = [(rate_ratio(folder, load), load) for load in loads]
    for ratio, load in ratios:
        assert load.needed is None or ratio >= load.needed, load.name


def rate_ratio(folder: Path, load: Load) -> float:
    """How many times as fast ours is as the best batch size of theirs; printed with the rates of all."""
    requests = load.requests(ModelConfig.load(folder).vocab_size)
    num_tokens = sum(request.sampling.max_new_tokens for request in requests)
    engine, theirs = TorchEngine(CONCURRENT), Transformers(folder)
    engine.load(folder)
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: list(generate(engine, requests)),
        **{f"theirs, {size}": partial(theirs, requests, size) for size in load.batch_sizes},
    }
    list(generate(engine, requests))
    theirs(requests[:GROUP_SIZE], GROUP_SIZE)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(load.rounds):
        for name, way in ways.items():
            taken[name].append(cpu_seconds(way))
    print(f"\n{load.name}: {num_tokens} tokens, rates per CPU-second")
    for name, seconds in taken.items():
        print(f"  {name:<14}{num_tokens / statistics.median(seconds):>10.0f}", flush=True)
    best = min((name for name in ways if name != "ours"), key=lambda name: statistics.median(taken[name]))
    ratio = statistics.median(b / a for a, b in zip(taken["ours"], taken[best], strict=True))
    print(f"  ours is {ratio:.1f} times as fast as {best}")
    return ratio


def test_cost_of_proofs_seeds_and_logprobs(model: tuple[Path, tuple[Load, ...]]) -> None:
    folder, (load, *_) = model
    requests = load.requests(ModelConfig.load(folder).vocab_size)
    engine, plain = TorchEngine(CONCURRENT), PlainEngine(folder)
    engine.load(folder)

    def proved() -> None:
        proofs_of(list(generate(engine, requests)), ToplocRules())

    proved(), plain(requests)
    pairs = [(cpu_seconds(proved), cpu_seconds(lambda: plain(requests))) for _ in range(max(5, load.rounds))]
    cost = statistics.median(a / b for a, b in pairs) - 1
    print(f"\n{load.name.split(',')[0]}: proofs, seeds and log-probs cost {100 * cost:+.1f} % of plain generation")
    assert load.needed != 2 or cost <= 0.03


class Transformers:
    """`generate()`, a batch at a time."""

    def __init__(self, folder: Path) -> None:
        self._model = load_transformers(folder, "float32", "auto")

    def __call__(self, requests: list[Request], batch_size: int) -> None:
        for start in range(0, len(requests), batch_size):
            self._generate(requests[start : start + batch_size])

    def _generate(self, requests: list[Request]) -> None:
        import transformers

        library: Any = transformers
        width = max(len(request.input_tokens) for request in requests)
        tokens, mask = (torch.zeros(len(requests), width, dtype=torch.int64) for _ in range(2))
        for row, request in enumerate(requests):
            prompt = torch.from_numpy(request.input_tokens.astype(np.int64))
            tokens[row, width - len(prompt) :], mask[row, width - len(prompt) :] = prompt, 1
        lengths = torch.tensor([request.sampling.max_new_tokens for request in requests])

        class OwnLength(library.StoppingCriteria):  # type: ignore[misc]
            def __call__(self, ids: Tensor, scores: Tensor, **others: object) -> Tensor:
                return ids.shape[1] >= lengths + width

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self._model.generate(
                input_ids=tokens, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                max_new_tokens=int(lengths.max()), eos_token_id=None, pad_token_id=0,
                stopping_criteria=library.StoppingCriteriaList([OwnLength()]),
            )  # fmt: skip
        assert found.shape[1] == width + int(lengths.max())


class PlainEngine:
    """The same decoding with torch's own sampling: no seeds, no log-probs, no states, no proofs."""

    def __init__(self, folder: Path) -> None:
        config = ModelConfig.load(folder)
        decoder = Decoder(config, load_weights(folder), torch.float32)
        self._batch = PlainBatch(decoder, CONCURRENT, MAX_CACHE_TOKENS)

    def __call__(self, requests: list[Request]) -> None:
        self._batch.add(requests)
        while self._batch.has_work:
            self._batch.step()


class PlainRows(Rows):
    """Keeps tokens alone."""

    def append(self, tokens: Tokens, logprobs: Float32Array, hidden: Tensor) -> list[Completion]:
        slots, positions = self.active, self._num_drawn[self.active]
        self._tokens[slots, positions] = tokens
        self.last_tokens[slots] = tokens
        self._num_drawn[slots] = positions + 1
        ended = (self._eos_ids[slots] == tokens[:, None]).any(axis=1) | (positions + 1 >= self._limits[slots])
        return [self._completion(int(slots[place]), "length") for place in np.flatnonzero(ended)]


class PlainBatch(Batch):
    """Softmax and multinomial, as `generate()` samples."""

    def clear(self) -> None:
        super().clear()
        self._rows = PlainRows(self._max_batch, 0)

    def _draw(self, hidden: Tensor) -> tuple[Tokens, Float32Array]:
        chances = self._decoder.logits(hidden).softmax(-1)
        return torch.multinomial(chances, 1)[:, 0].numpy(), np.empty(0, dtype=np.float32)
