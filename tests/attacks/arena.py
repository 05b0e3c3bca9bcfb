"""One pool to lie to: its world, the models that are lied with, and honest work to steal from.

In: a `World` (rules, environment, the judging model) and how many tasks to try. Out: completions of any model, noise,
sampling and prompts, and rows that the right model proves; all of it from running models, and made once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from protocol.engines.base import Completion, Request, generate, requests_of
from protocol.engines.torch import TorchEngine
from protocol.environments.base import Environment
from protocol.forward import CausalLM
from protocol.prompts import Prompt, task_prompts
from protocol.prover import in_task_order, rollout_of
from protocol.rollouts import Int32Array, Rollout
from protocol.rules import Rules, SamplingRules
from protocol.toploc.build import build_rollouts
from tests.attacks.cache import Cache
from tests.attacks.reading import Reading, Readings
from tests.unit.verifier.verifier_world import World

if TYPE_CHECKING:
    from tests.attacks.attack import Attack

RIGHT = "right"
"""The policy version that the task names, in float32."""

NOISY = "this pool's own noise is about as large"

MakeModel = Callable[["Arena"], CausalLM]


@dataclass(frozen=True, eq=False)
class Arena:
    """`makers` build the models that cheats use, by name. Honest workers compute with the model `honest`.

    Cheats compute in float32 whatever the pool's precision: another precision's noise would come on top of the lie.
    """

    title: str
    world: World
    makers: Mapping[str, MakeModel]
    cache: Cache
    num_tasks: int = 2
    num_generated: int = 2
    """Tasks tried of attacks that need tokens of their own."""
    honest: str = RIGHT
    max_batch: int = 64
    left_out: frozenset[str] = frozenset()
    """Attacks that take too long on this model."""
    hides: frozenset[str] = frozenset()
    """Attacks that this pool's own noise hides, wholly or in part; float32 pools catch all of their files."""
    _models: dict[str, CausalLM] = field(default_factory=dict)
    _drawn: dict[str, list[Completion]] = field(default_factory=dict)

    @property
    def rules(self) -> Rules:
        return self.world.rules

    @property
    def environment(self) -> Environment:
        return self.world.environment

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.environment.tokenizer.eos_ids

    @property
    def num_rollouts(self) -> int:
        """Of one task."""
        return self.rules.group_size * self.rules.groups_per_task

    def counters(self, attack: Attack) -> range:
        """The tasks that this attack is tried on."""
        return range(min(self.num_tasks, self.num_generated) if attack.generates else self.num_tasks)

    def marked(self, attack: Attack) -> Attack:
        """The attack, said to be close to honest work where this pool's noise makes it so."""
        return replace(attack, close=NOISY) if attack.name in self.hides and not attack.close else attack

    def other(self, counter: int) -> int:
        """Another task of those that are tried."""
        return (counter + 1) % self.num_tasks

    def model(self, name: str) -> CausalLM:
        """Made when first asked for; besides the right one only the last is kept, since real ones are large."""
        if name not in self._models:
            made = self.makers[name](self)
            for other in [other for other in self._models if other != RIGHT]:
                del self._models[other]
            self._models[name] = made
        return self._models[name]

    def prompts(self, counter: int) -> list[Prompt]:
        return task_prompts(self.rules, self.environment, self.world.seed(counter))

    def prompt_of(self, counter: int, sample: int) -> Prompt:
        return self.prompts(counter)[sample // self.rules.group_size]

    def prompt_tokens(self, counter: int) -> list[Int32Array]:
        """Of every rollout of the task."""
        return [p.tokens for p in self.prompts(counter) for _ in range(self.rules.group_size)]

    def draw(
        self,
        counter: int,
        *,
        model: str | None = None,
        seed: bytes | None = None,
        sampling: SamplingRules | None = None,
        prompts: Sequence[Int32Array] | None = None,
        max_batch: int | None = None,
    ) -> list[Completion]:
        """What the product's engine makes of a task; whatever is left out is as the task says."""
        name, asked = model or self.honest, prompts or self.prompt_tokens(counter)
        how = (seed or self.world.seed(counter), sampling or self.rules.sampling, max_batch or self.max_batch)
        text = f"{self.identity} {name} {how} {[p.tolist() for p in asked]}"
        if text not in self._drawn:
            self._drawn[text] = self.cache.get(text, lambda: self._generate(name, asked, *how))
        return self._drawn[text]

    def proved(self, counter: int, completions: Sequence[Completion], rewards: Sequence[float]) -> list[Rollout]:
        """Rows whose proofs and log-probs one prefill of the judging model gives, whoever drew the tokens."""
        bare = [
            rollout_of(self.prompt_of(counter, c.sample), c, b"", r, 0)
            for c, r in zip(completions, rewards, strict=True)
        ]
        return self.prove(counter, bare)

    def prove(self, counter: int, rows: Sequence[Rollout]) -> list[Rollout]:
        readings = self.read(counter, rows)
        proofs = build_rollouts([reading.states for reading in readings], ties=self.rules.toploc.ties)
        return [
            replace(row, proofs=proof, output_logprobs=reading.found.logprobs.astype(np.float32))
            for row, proof, reading in zip(rows, proofs, readings, strict=True)
        ]

    def read(self, counter: int, rows: Sequence[Rollout]) -> list[Reading]:
        """What the judging model says of these rows' tokens, all rows of a task in order."""
        return self.readings.of(self.world, counter, rows)

    @cached_property
    def readings(self) -> Readings:
        return Readings(self.identity, self.cache)

    @cached_property
    def identity(self) -> str:
        """What completions depend on besides how they are drawn."""
        weights = hashlib.sha256((self.world.folder / "model.safetensors").read_bytes()).hexdigest()
        return f"{weights} {self.rules.environment.environment_hash}"

    def _generate(
        self, name: str, prompts: Sequence[Int32Array], seed: bytes, sampling: SamplingRules, max_batch: int
    ) -> list[Completion]:
        engine = TorchEngine(max_batch)
        engine.use(self.model(name))
        requests = requests_of(seed, prompts, sampling, self.eos_ids)
        return in_task_order(list(generate(engine, requests)), len(prompts))


def completion(sample: int, tokens: Int32Array, finish_reason: str) -> Completion:
    """Tokens that no engine drew: no states, no log-probs."""
    unasked = Request(b"", sample, np.empty(0, np.int32), SamplingRules(), frozenset())
    return Completion(unasked, tokens, np.zeros(len(tokens), np.float32), torch.empty(0), finish_reason)
