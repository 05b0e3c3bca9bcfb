"""What every engine does: weights in, requests in at any time, finished completions out, with what a proof needs.

    ModelFolder ──load──▶ engine, later versions ──apply──▶ the same engine
    engine ──add(requests), step(), step(), …──▶ Completion, Completion, …

An engine draws tokens by `protocol/sampling.py` and nothing else, so that any two of them give the
same tokens but for near-ties. One file per engine: `torch.py`; `registry.py` makes one by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from protocol.errors import ProofpoolError
from protocol.rollouts import Float32Array, Int32Array
from protocol.rules import SamplingRules

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Request:
    """One rollout to generate, with all that its tokens depend on besides the weights.

    `seed` is the task's and `sample` the rollout's number in it (group × group size + place): both pick the noise.
    `input_tokens` is int32 [P], P ≥ 1. A token of `eos_ids` ends the rollout, and so do `sampling.max_new_tokens`.
    """

    seed: bytes
    sample: int
    input_tokens: Int32Array
    sampling: SamplingRules
    eos_ids: frozenset[int]


def requests_of(
    seed: bytes, prompts: Sequence[Int32Array], sampling: SamplingRules, eos_ids: Collection[int]
) -> list[Request]:
    """A request for each prompt ([P] int32), numbered in this order: one a rollout, so a group repeats its own."""
    ends = frozenset(eos_ids)
    return [Request(seed, sample, prompt, sampling, ends) for sample, prompt in enumerate(prompts)]


@dataclass(frozen=True, eq=False)
class Completion:
    """A finished request, in the terms of `protocol/rollouts.py`.

    output_tokens int32 [T], T ≥ 1; output_logprobs float32 [T]; hidden_rows bf16 [T, H], the last hidden
    states at the sampled positions (row 0 is the last prompt token's); finish_reason "stop" or "length".
    """

    request: Request
    output_tokens: Int32Array
    output_logprobs: Float32Array
    hidden_rows: Tensor
    finish_reason: str

    @property
    def sample(self) -> int:
        """The rollout's number in its task."""
        return self.request.sample


class Engine(Protocol):
    """Requests of any tasks decode together. The same weights and requests give the same completions, in any order.

    Where `step` raises, the work stays as it was: `abort` it before anything else.
    """

    def load(self, folder: Path) -> None:
        """Take the model in a Hugging Face folder in place of any that was loaded before.

        Raises ConfigError or MalformedFile, and ProofpoolError while there is work: no rollout mixes two versions.
        """
        ...

    def add(self, requests: Sequence[Request]) -> None:
        """Let these decode as soon as there is room, between any two steps.

        Raises ProofpoolError before `load`, and for a request that can never have room; none is added then.
        """
        ...

    def step(self) -> list[Completion]:
        """One step for all that decode; the completions that it finished, often none.

        Raises ProofpoolError for logits that aren't finite.
        """
        ...

    @property
    def has_work(self) -> bool:
        """Whether a request isn't finished yet."""
        ...

    @property
    def num_waiting(self) -> int:
        """Requests that don't decode yet. 0: the next step would have room for more, or just fits."""
        ...

    def abort(self) -> None:
        """Drop all requests."""
        ...

    def close(self) -> None:
        """Drop all requests, and give back what the engine holds: memory, processes. It may be loaded again."""
        ...


class LiveEngine(Engine, Protocol):
    """An engine that stays up while versions come: what a worker generates with."""

    def apply(self, patches: Sequence[Path], folder: Path) -> None:
        """Become the version in `folder` by patches from the one that is loaded, in order, in the running model.

        All that follows is to the bit what it were after `load(folder)`. Only values that change are written, and only
        where the patches make what they promise of the file that was loaded, which has to be there still.
        Raises VerificationFailed, MalformedFile or OSError where they don't: the engine then is as it was; and
        ProofpoolError while there is work or where this engine can't. `load` is the way out of each.
        """
        ...


def require_idle(engine: Engine) -> None:
    """Raises ProofpoolError while there is work."""
    if engine.has_work:
        raise ProofpoolError("the engine has work", f"{engine.num_waiting} requests wait", "finish or abort it first")


def generate(engine: Engine, requests: Sequence[Request]) -> Iterator[Completion]:
    """Completions of these requests as they finish. Whatever is left when the caller stops early is aborted.

    Raises ProofpoolError where the engine has other work, and whatever `add` and `step` raise.
    """
    require_idle(engine)
    try:
        engine.add(requests)
        while engine.has_work:
            yield from engine.step()
    finally:
        engine.abort()
