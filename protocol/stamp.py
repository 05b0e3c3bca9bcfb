"""Work stamps: numbers in a verdict that only a run of the model over the submission gives.

In: the beacon that drew a seat, and the completions that the seat looked at. Out: the seat's challenge (rows of these
completions, each with another token than the one that stands there), the stamp (the log-probs of these tokens under
the policy version's model) and, for whoever recomputes it, whether a stamp holds.

The file can't supply a stamp: it has the log-probs of the claimed tokens only. Another seat's stamp doesn't help:
each seat of each round has a challenge of its own. Where a verdict rests on the cheap checks alone, the model doesn't
run and no stamp is due: such a refusal is recomputed exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from protocol.canonical import from_hex0x, keccak256
from protocol.randomness import SeedStream

NUM_PAIRS = 16
NUM_DECIMALS = 4
MIN_LOGPROB = -100.0
"""Anything less likely counts as this: out there float32 models differ, and JSON has no infinity."""
MAX_DIFFERENCE = 0.1
"""Nats between two honest stamps; float32 models on other machines and kernels differ by less than a thousandth of it,
and the best guess without the model is right about one answer in ten: 16 times in a row, 1e-15 (docs/verifier.md)."""
_LABEL = "stamp"


class StampPair(NamedTuple):
    """What is asked: the log-prob of `token` where output token `position` of rollout number `rollout` stands."""

    rollout: int
    position: int
    token: int


def stamp_seed(beacon_hash: str, submission_id: str, round_number: int, seat: int) -> bytes:
    """keccak256 over four 32-byte words: the beacon that drew the seat, submission id, round, seat index."""
    words = (
        from_hex0x(beacon_hash)
        + from_hex0x(submission_id)
        + round_number.to_bytes(32, "big")
        + seat.to_bytes(32, "big")
    )
    return keccak256(words)


def stamp_challenge(
    seed: bytes, completions: Mapping[int, Sequence[int]], vocab_size: int, num_pairs: int = NUM_PAIRS
) -> tuple[StampPair, ...]:
    """The pairs that a seat is asked for.

    `completions` are the output tokens of the audited rollouts by number; their rows count as one list, in order of
    number. For each pair: a row of that list, then one of the vocabulary's other tokens, evenly.
    """
    numbers = sorted(completions)
    ends = list(accumulate(len(completions[number]) for number in numbers))
    stream, pairs = SeedStream(seed, _LABEL), []
    for _ in range(num_pairs if ends and ends[-1] else 0):
        row = stream.below(ends[-1])
        place = next(index for index, end in enumerate(ends) if row < end)
        number = numbers[place]
        position = row - (ends[place] - len(completions[number]))
        other = stream.below(vocab_size - 1)
        pairs.append(StampPair(number, position, other + (other >= completions[number][position])))
    return tuple(pairs)


def stamp_of(logprobs: Iterable[float]) -> tuple[float, ...]:
    """Log-probs (nats) in the form in which evidence holds them: rounded, and none below `MIN_LOGPROB`."""
    return tuple(round(max(float(logprob), MIN_LOGPROB), NUM_DECIMALS) + 0.0 for logprob in logprobs)


def largest_difference(stamp: Sequence[float], expected: Sequence[float]) -> float | None:
    """Between a stamp and the same recomputed, in nats; None where one is missing or of another length."""
    if not stamp or len(stamp) != len(expected):
        return None
    return round(max(abs(ours - theirs) for ours, theirs in zip(stamp, expected, strict=True)), NUM_DECIMALS)


def is_disputed(num_agreeing: int, num_disputing: int) -> bool:
    """Whether more of a stamp's reviews speak against it than for it."""
    return num_disputing > num_agreeing


def is_contested(num_agreeing: int, num_disputing: int) -> bool:
    """Whether one more review can turn it: the stamp's own seat counts for it, and a tie asks for one more."""
    return num_disputing == num_agreeing + 1
