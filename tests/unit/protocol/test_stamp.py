"""Challenges of work stamps, and when a stamp holds."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical import canonical_json
from protocol.stamp import (
    MAX_DIFFERENCE,
    MIN_LOGPROB,
    NUM_PAIRS,
    is_contested,
    is_disputed,
    largest_difference,
    stamp_challenge,
    stamp_of,
    stamp_seed,
)

BEACON, SUBMISSION = "0x" + "be" * 32, "0x" + "5b" * 32
SEED = stamp_seed(BEACON, SUBMISSION, 0, 3)
VOCAB_SIZE = 12

completions = st.dictionaries(
    st.integers(0, 50), st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=9), min_size=1, max_size=6
)


@given(completions, st.binary(min_size=32, max_size=32))
def test_a_challenge_asks_for_other_tokens_of_rows_that_are_there(found: dict[int, list[int]], seed: bytes) -> None:
    pairs = stamp_challenge(seed, found, VOCAB_SIZE)
    assert len(pairs) == NUM_PAIRS
    for pair in pairs:
        assert 0 <= pair.token < VOCAB_SIZE and pair.token != found[pair.rollout][pair.position]


def test_where_nothing_was_computed_nothing_is_asked() -> None:
    assert stamp_challenge(SEED, {}, VOCAB_SIZE) == ()


def test_rows_and_tokens_are_asked_evenly() -> None:
    pairs = stamp_challenge(SEED, {0: [0], 7: [3, 11, 0]}, VOCAB_SIZE, num_pairs=12_000)
    rows = Counter((pair.rollout, pair.position) for pair in pairs)
    assert set(rows) == {(0, 0), (7, 0), (7, 1), (7, 2)}
    assert all(abs(count - 3_000) < 250 for count in rows.values())
    tokens = Counter(pair.token for pair in pairs if pair[:2] == (7, 0))
    assert set(tokens) == set(range(VOCAB_SIZE)) - {3}
    assert all(abs(count - 3_000 / 11) < 85 for count in tokens.values())


def test_every_seat_round_submission_and_beacon_is_asked_something_else() -> None:
    tokens = {number: [1] * 40 for number in range(8)}
    seeds = [
        SEED,
        stamp_seed(BEACON, SUBMISSION, 0, 4),
        stamp_seed(BEACON, SUBMISSION, 1, 3),
        stamp_seed(BEACON, "0x" + "5c" * 32, 0, 3),
        stamp_seed("0x" + "bf" * 32, SUBMISSION, 0, 3),
    ]
    challenges = [set(stamp_challenge(seed, tokens, 1_000)) for seed in seeds]
    assert all(not a & b for i, a in enumerate(challenges) for b in challenges[:i])


@given(st.lists(st.floats(max_value=0), max_size=16))
def test_a_stamp_has_a_canonical_form(logprobs: list[float]) -> None:
    finite = [-math.inf if math.isnan(logprob) else logprob for logprob in logprobs]
    stamp = stamp_of(finite)
    canonical_json(list(stamp))
    assert all(MIN_LOGPROB <= answer <= 0 for answer in stamp)


def test_honest_noise_is_far_from_the_limit_and_any_one_wrong_answer_beyond_it() -> None:
    expected = [-7.25, -0.5, -100.0]
    assert largest_difference([-7.2491, -0.5, -100.0], expected) == 0.0009 < MAX_DIFFERENCE
    wrong = largest_difference([-7.25, -0.5, -99.5], expected)
    assert wrong is not None and wrong > MAX_DIFFERENCE


def test_a_stamp_that_is_missing_or_too_short_is_compared_with_nothing() -> None:
    assert largest_difference([], [-1.0]) is None
    assert largest_difference([-1.0], [-1.0, -2.0]) is None
    assert largest_difference([], []) is None


def test_more_reviews_against_a_stamp_than_for_it_dispute_it() -> None:
    assert [is_disputed(*votes) for votes in ((0, 0), (1, 0), (1, 1), (2, 1))] == [False] * 4
    assert is_disputed(0, 1) and is_disputed(1, 2)


def test_one_against_a_stamp_asks_for_one_more() -> None:
    assert is_contested(0, 1) and is_contested(1, 2)
    assert not any(is_contested(*votes) for votes in ((0, 0), (1, 0), (1, 1), (0, 2), (1, 3)))
