"""What a calibration computes: which generators make how many submissions, and which judges look at each.

In: a precision, how many rollouts, batch sizes. Out: `Plan`, whose `jobs` are the same for the same settings: a job
is one submission from one generator, or as many as fill its batch, looked at by one or two judges.

The first judge, our own engine as a verifier runs it, looks at everything; the others take turns. A generator's
share of the submissions is in proportion to its batch size, so that each gets about the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from protocol.errors import UsageError
from verifier.calibration.setups import Dtype, Generator, Judge, has_kernel, has_transformers

OTHER_BATCH = 32
"""Of generators that are there for their difference; they are slower than ours."""
SMALL_SLICES = 256
TWO_THREADS = 2


@dataclass(frozen=True)
class Job:
    """Task number `number` of the calibration: noise and prompts follow from it. It makes `num_submissions`."""

    number: int
    generator: Generator
    judges: tuple[Judge, ...]
    num_submissions: int


@dataclass(frozen=True)
class Plan:
    """At least `num_submissions` of `submission_rollouts` each, over all generators; judged by the first judge, and by
    one other in turn."""

    dtype: Dtype
    num_submissions: int
    submission_rollouts: int
    generators: tuple[Generator, ...]
    judges: tuple[Judge, ...]

    def jobs(self) -> Iterator[Job]:
        """In order of their numbers; generators alternate, so that an interrupted run has some of each."""
        first, *others = self.judges
        turns: Counter[Generator] = Counter()
        for number, (generator, num_submissions) in enumerate(self._dealt()):
            turn = (others[turns[generator] % len(others)],) if others else ()
            turns[generator] += 1
            yield Job(number, generator, (first, *turn), num_submissions)

    def _dealt(self) -> Iterator[tuple[Generator, int]]:
        """Generators, in an order in which each has given about its share at any time; each comes up once at least."""
        total = sum(generator.max_batch for generator in self.generators)
        given = dict.fromkeys(self.generators, 0)
        while sum(given.values()) < self.num_submissions or not all(given.values()):
            due = sum(given.values()) + 1
            unseen = [generator for generator, count in given.items() if not count]
            generator = unseen[0] if unseen else max(given, key=lambda g: g.max_batch * due / total - given[g])
            num_submissions = max(1, generator.max_batch // self.submission_rollouts)
            given[generator] += num_submissions
            yield generator, num_submissions


def make_plan(
    dtype: Dtype,
    num_submissions: int,
    submission_rollouts: int = 64,
    batch_sizes: Sequence[int] = (1, 8, 64),
    generators: Sequence[str] = (),
    judges: Sequence[str] = (),
) -> Plan:
    """All that this machine can compute with, or only the named ones.

    Raises UsageError for a name that isn't known or can't be computed here, and for sizes below 1.
    """
    if num_submissions < 1 or not batch_sizes or min(batch_sizes) < 1:
        raise UsageError("there is nothing to calibrate", f"{num_submissions} submissions, batches of {batch_sizes}")
    known_generators = dict(_generators(dtype, batch_sizes))
    known_judges = dict(_judges(dtype))
    return Plan(
        dtype=dtype,
        num_submissions=num_submissions,
        submission_rollouts=submission_rollouts,
        generators=tuple(g for name in _chosen(generators, known_generators) for g in known_generators[name]),
        judges=tuple(known_judges[name] for name in _chosen(judges, known_judges)),
    )


def _generators(dtype: Dtype, batch_sizes: Sequence[int]) -> Iterator[tuple[str, tuple[Generator, ...]]]:
    largest = max(batch_sizes)
    yield "torch", tuple(Generator("torch", dtype, max_batch=size) for size in sorted(set(batch_sizes)))
    yield "torch-math", (Generator("torch", dtype, "math", max_batch=min(largest, OTHER_BATCH)),)
    yield "torch-threads", (Generator("torch", dtype, num_threads=TWO_THREADS, max_batch=min(largest, OTHER_BATCH)),)
    if has_transformers():
        yield "transformers", (Generator("transformers", dtype, max_batch=min(largest, OTHER_BATCH)),)
    if dtype == "bfloat16":  # who computes more precisely than the pool asks is honest too
        yield "torch-float32", (Generator("torch", "float32", max_batch=largest),)
        sizes = sorted(set(batch_sizes))
        yield "torch-wide", tuple(Generator("torch", dtype, is_wide=True, max_batch=size) for size in sizes)


def _judges(dtype: Dtype) -> Iterator[tuple[str, Judge]]:
    yield "torch", Judge("torch", dtype)
    yield "torch-math", Judge("torch", dtype, "math")
    yield "torch-threads", Judge("torch", dtype, num_threads=TWO_THREADS)
    for kernel in ("flash", "efficient"):
        if has_kernel(kernel, dtype):
            yield f"torch-{kernel}", Judge("torch", dtype, kernel, slice_tokens=SMALL_SLICES)
    if has_transformers():
        yield "transformers", Judge("transformers", dtype)
        yield "transformers-eager", Judge("transformers", dtype, "eager")
    if dtype == "bfloat16":
        yield "torch-float32", Judge("torch", "float32")
        yield "torch-wide", Judge("torch", dtype, is_wide=True)


def _chosen(names: Sequence[str], known: Mapping[str, object]) -> list[str]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError("this machine can't compute that way", unknown[0], f"there are: {', '.join(known)}")
    return list(names) or list(known)
