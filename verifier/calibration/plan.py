"""What a calibration computes: which generators make how many submissions, and which judges look at each.

In: a precision, how many rollouts, batch sizes. Out: `Plan`, whose `jobs` are the same for the same settings: a job
is one submission from one generator, looked at by one or two judges.

The first judge, our own engine as a verifier runs it, looks at everything; the others take turns. A generator's
share of the submissions is in proportion to its batch size, so that each gets about the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from protocol.errors import UsageError
from verifier.calibration.setups import Dtype, Generator, Judge, has_kernel, has_transformers

REFERENCE_BATCH = 8
SMALL_SLICES = 256
TWO_THREADS = 2


@dataclass(frozen=True)
class Job:
    """Submission number `number` of the calibration: the noise, prompts and seed follow from it."""

    number: int
    generator: Generator
    judges: tuple[Judge, ...]


@dataclass(frozen=True)
class Plan:
    """`num_submissions` over all generators; each is judged by the first judge, and by one other in turn."""

    dtype: Dtype
    num_submissions: int
    generators: tuple[Generator, ...]
    judges: tuple[Judge, ...]

    def jobs(self) -> Iterator[Job]:
        """In order of their numbers; generators alternate, so that an interrupted run has some of each."""
        first, *others = self.judges
        turns: Counter[Generator] = Counter()
        for number, generator in enumerate(_dealt(self.generators, self.num_submissions)):
            turn = (others[turns[generator] % len(others)],) if others else ()
            turns[generator] += 1
            yield Job(number, generator, (first, *turn))


def make_plan(
    dtype: Dtype,
    num_submissions: int,
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
        generators=tuple(g for name in _chosen(generators, known_generators) for g in known_generators[name]),
        judges=tuple(known_judges[name] for name in _chosen(judges, known_judges)),
    )


def _generators(dtype: Dtype, batch_sizes: Sequence[int]) -> Iterator[tuple[str, tuple[Generator, ...]]]:
    largest = max(batch_sizes)
    yield "torch", tuple(Generator("torch", dtype, max_batch=size) for size in sorted(set(batch_sizes)))
    yield "torch-math", (Generator("torch", dtype, "math", TWO_THREADS, max_batch=min(largest, REFERENCE_BATCH)),)
    if has_transformers():
        yield "transformers", (Generator("transformers", dtype, max_batch=REFERENCE_BATCH),)
    if dtype == "bfloat16":  # who computes more precisely than the pool asks is honest too
        yield "torch-float32", (Generator("torch", "float32", max_batch=largest),)


def _judges(dtype: Dtype) -> Iterator[tuple[str, Judge]]:
    yield "torch", Judge("torch", dtype)
    yield "torch-math", Judge("torch", dtype, "math", TWO_THREADS)
    for kernel in ("flash", "efficient"):
        if has_kernel(kernel, dtype):
            yield f"torch-{kernel}", Judge("torch", dtype, kernel, slice_tokens=SMALL_SLICES)
    if has_transformers():
        yield "transformers", Judge("transformers", dtype)
        yield "transformers-eager", Judge("transformers", dtype, "eager")
    if dtype == "bfloat16":
        yield "torch-float32", Judge("torch", "float32")


def _chosen(names: Sequence[str], known: Mapping[str, object]) -> list[str]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError("this machine can't compute that way", unknown[0], f"there are: {', '.join(known)}")
    return list(names) or list(known)


def _dealt(generators: Sequence[Generator], count: int) -> list[Generator]:
    """`count` generators in an order in which each has come up in proportion to its batch size, at any time."""
    total = sum(generator.max_batch for generator in generators)
    given = [0] * len(generators)
    dealt = []
    for number in range(count):
        owed = [g.max_batch * (number + 1) / total - n for g, n in zip(generators, given, strict=True)]
        unseen = [index for index, n in enumerate(given) if n == 0]
        index = unseen[0] if unseen else max(range(len(owed)), key=owed.__getitem__)
        given[index] += 1
        dealt.append(generators[index])
    return dealt
