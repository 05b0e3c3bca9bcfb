"""Submissions, made by one generator: prompts from a seed, rollouts with proofs, as a worker would hand them in.

In: a subject, a generator, the number of the task. Out: a `Case`, as a verifier opens it, of one submission or of
several with one seed, so that they can fill a batch. Rewards aren't computed: no limit depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from protocol.canonical import hex0x, sha256
from protocol.checks.case import Case
from protocol.engines.base import Completion, Engine, generate, requests_of
from protocol.engines.torch import TorchEngine
from protocol.prompts import Prompt, task_prompts
from protocol.prover import in_task_order, proofs_of, rollout_of
from protocol.rollouts import FileHeader, Rollout
from protocol.rules import SamplingRules
from verifier.calibration.reference import ReferenceEngine
from verifier.calibration.setups import DTYPES, Generator, computing
from verifier.calibration.subject import POLICY_VERSION, Subject

NO_REWARD = 0.0


@dataclass
class Generation:
    """Makes submissions of one subject; `seed` fixes all of them. Engines stay loaded from one to the next."""

    subject: Subject
    seed: int = 0
    _engines: dict[tuple[Generator, Path], Engine] = field(default_factory=dict)

    def task(
        self,
        number: int,
        generator: Generator,
        num_submissions: int = 1,
        *,
        folder: Path | None = None,
        sampling: SamplingRules | None = None,
    ) -> Case:
        """Honest work, unless `folder` has other weights than the subject's, or `sampling` isn't its rules'."""
        subject, seed = self.subject.of_size(num_submissions), self.task_seed(number)
        prompts = task_prompts(subject.rules, subject.environment, seed)
        asked = [prompts[i // subject.rules.group_size].tokens for i in range(subject.num_rollouts)]
        eos_ids = subject.environment.tokenizer.eos_ids
        requests = requests_of(seed, asked, sampling or subject.rules.sampling, eos_ids)
        with computing(generator):
            finished = list(generate(self._engine(generator, folder or subject.folder), requests))
        header = FileHeader(
            task_id=hex0x(seed), group_size=subject.rules.group_size, sampling=sampling or subject.rules.sampling
        )
        return Case(subject.terms(seed), header, tuple(_rollouts(subject, prompts, finished)))

    def task_seed(self, number: int) -> bytes:
        """32 bytes: what a pool would draw from node, counter and beacon."""
        return sha256(f"proofpool calibration {self.seed} {number}".encode())

    def _engine(self, generator: Generator, folder: Path) -> Engine:
        key = (generator, folder)
        if key not in self._engines:
            self._engines[key] = _make_engine(generator)
            self._engines[key].load(folder)
        return self._engines[key]


def _make_engine(generator: Generator) -> Engine:
    if generator.implementation == "transformers":
        return ReferenceEngine(generator.max_batch, generator.dtype, generator.kernel)
    return TorchEngine(generator.max_batch, DTYPES[generator.dtype])


def _rollouts(subject: Subject, prompts: Sequence[Prompt], finished: Sequence[Completion]) -> list[Rollout]:
    completions = in_task_order(finished, subject.num_rollouts)
    proofs, size = proofs_of(completions, subject.rules.toploc), subject.rules.group_size
    return [
        rollout_of(prompts[completion.sample // size], completion, proof, NO_REWARD, POLICY_VERSION)
        for completion, proof in zip(completions, proofs, strict=True)
    ]
