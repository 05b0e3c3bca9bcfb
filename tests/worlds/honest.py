"""Honest work in bulk: rollouts from every way of generating, judged every way of judging, under committed limits.

In: a threshold file's name and how many rollouts. Out: a `Tally` of what was refused: whole submissions of 64, and
each rollout alone, as an audit that drew only it would judge it. Prompts and noise are others than the calibration's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import torch

from protocol.checks.case import Case
from protocol.checks.measurements import Measurements
from protocol.rules import Thresholds
from testnet import base_model
from verifier.calibration.generate import Generation
from verifier.calibration.observe import judged
from verifier.calibration.plan import Job, Plan, make_plan
from verifier.calibration.run import Models, refusing
from verifier.calibration.setups import Dtype, Judge
from verifier.calibration.subject import load_subject
from verifier.thresholds import thresholds_of

BASE_MODEL = Path(base_model.__file__).parent
SEED = 1
"""The committed files are of seed 0."""
SUBMISSION = 64
BATCH_SIZES = (1, 8, 64, 256)
GENERATORS: dict[Dtype, tuple[str, ...]] = {
    "float32": (),
    "bfloat16": ("torch-wide", "torch-float32", "torch-math", "transformers"),
}
JUDGES: dict[Dtype, tuple[str, ...]] = {
    "float32": (),
    "bfloat16": ("torch-wide", "torch-float32", "torch", "torch-math", "torch-flash", "transformers"),
}
"""All that there are in float32; in bfloat16 those that don't take hours on a processor without units for it."""


@dataclass
class Tally:
    """What was judged, and what of it was refused, by the checks that refused it."""

    rollouts: Counter[tuple[str, str]] = field(default_factory=Counter)
    num_tokens: int = 0
    submissions_refused: Counter[str] = field(default_factory=Counter)
    rollouts_refused: Counter[str] = field(default_factory=Counter)

    @property
    def num_rollouts(self) -> int:
        return sum(self.rollouts.values())

    @classmethod
    def joined(cls, parts: Iterable[Tally]) -> Tally:
        whole = cls()
        for part in parts:
            whole.rollouts += part.rollouts
            whole.num_tokens += part.num_tokens
            whole.submissions_refused += part.submissions_refused
            whole.rollouts_refused += part.rollouts_refused
        return whole

    def add(self, job: tuple[str, str], case: Case, found: Measurements, limits: Thresholds) -> None:
        """Generator's and judge's names, and what the judge measured: judged by submissions, and each rollout alone."""
        self.rollouts[job] += len(case.rollouts)
        self.num_tokens += found.num_tokens
        each = [found.only(place) for place in range(len(case.rollouts))]
        for start in range(0, len(each), SUBMISSION):
            whole = Measurements.joined(each[start : start + SUBMISSION])
            self.submissions_refused.update(refusing(case, whole, limits))
        for one in each:
            self.rollouts_refused.update(refusing(case, one, limits))

    def show(self) -> None:
        """Who judged how much of whose."""
        for (generator, judge), count in sorted(self.rollouts.items()):
            print(f"{generator:<40} judged by {judge:<48} {count:>7}")
        print(f"{self.num_rollouts} rollouts, {self.num_tokens} tokens", end="")
        print(f"; refused: submissions {dict(self.submissions_refused)}, rollouts {dict(self.rollouts_refused)}")
        print(f"none of {self.num_rollouts} bounds the rate by {3 / self.num_rollouts:.2g} (95 %)")


def judge_in_processes(dtype: Dtype, num_rollouts: int, num_processes: int) -> Tally:
    """All of it, dealt to processes of one thread each."""
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        parts = [pool.submit(judge_share, dtype, num_rollouts, i, num_processes) for i in range(num_processes)]
        return Tally.joined(part.result() for part in parts)


def judge_share(
    dtype: Dtype, num_rollouts: int, index: int = 0, num_shares: int = 1, generators: Sequence[str] = ()
) -> Tally:
    """Every `num_shares`th task, from number `index` on; of the named generators only, if any are named."""
    torch.set_num_threads(1)
    subject = load_subject(BASE_MODEL)
    limits = thresholds_of(f"testnet.{dtype}")
    generation, models, tally = Generation(subject, SEED), Models(subject.folder), Tally()
    ways = (generators or GENERATORS[dtype], JUDGES[dtype])
    plan = make_plan(dtype, -(-num_rollouts // SUBMISSION), SUBMISSION, BATCH_SIZES, *ways)
    for job, judge in _dealt(plan, index, num_shares):
        case = generation.task(job.number, job.generator, job.num_submissions)
        found = judged(case, models.of(judge), judge)
        tally.add((job.generator.name, judge.name), case, found, limits)
    return tally


def _dealt(plan: Plan, index: int, num_shares: int) -> Iterator[tuple[Job, Judge]]:
    """Each task with one judge: in turn the first, which verifiers run, and one of the others."""
    for job in plan.jobs():
        if job.number % num_shares == index:
            yield job, job.judges[(job.number // num_shares) % len(job.judges)]
