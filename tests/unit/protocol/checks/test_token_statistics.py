"""Statistics over tokens: an edited token, too many flips, chosen branches, implausible tokens; noise passes."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from protocol.checks import logprobs, plausibility, sampling
from protocol.checks.case import Case
from protocol.checks.measurements import Measurements, measurements_of
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import FlipTest, Limit, SamplingRules, Thresholds
from protocol.sampling_rows import RowStatistics
from tests.unit.verifier.verifier_world import World

NUM_TOKENS = 1800
THRESHOLDS = Thresholds(
    toploc_exp_mismatch_share=Limit(reject=1),
    toploc_mantissa_mean=Limit(reject=128),
    sampling_margin_mean=Limit(reject=0.0005, slash=0.002),
    sampling_margin_max=Limit(reject=0.001, slash=0.01),
    sampling_flips=FlipTest(rate=1e-5),
    logprob_error_mean=Limit(reject=0.01),
)
CLIPPED = THRESHOLDS.model_copy(update={"sampling_margin_clip": 0.2})

MakeCase = Callable[..., Case]


@pytest.fixture
def make_case(world: World, honest: list[Rollout]) -> MakeCase:
    """A case of one rollout of 1,800 tokens that was measured as told: sure of every token, and right about it."""

    def make(rules: SamplingRules | None = None, thresholds: Thresholds = THRESHOLDS, **rows: np.ndarray) -> Case:
        nothing = np.zeros(NUM_TOKENS)
        told = dict.fromkeys(RowStatistics.__dataclass_fields__, nothing) | {
            "runner_up_margins": np.full(NUM_TOKENS, 5.0)
        }
        statistics = RowStatistics(**{**told, "drawn": nothing.astype(np.int64), **rows})
        update = {"sampling": rules or SamplingRules(), "thresholds": thresholds}
        case = world.case(honest, rules=world.rules.model_copy(update=update))
        claimed = replace(honest[0], output_logprobs=np.zeros(NUM_TOKENS, dtype=np.float32))
        found = Measurements((0,), (NUM_TOKENS,), statistics, (), np.empty(0))
        return replace(case, rollouts=(claimed, *case.rollouts[1:]), measurements=found)

    return make


def at(*places: tuple[int, float]) -> np.ndarray:
    """Zeros, but for these."""
    values = np.zeros(NUM_TOKENS)
    for index, value in places:
        values[index] = value
    return values


# Margins and flips


@pytest.mark.parametrize(
    ("margin", "outcome"), [(0.0009, Outcome.ACCEPT), (0.002, Outcome.DROP), (0.02, Outcome.SLASH)]
)
def test_one_edited_token_is_enough(make_case: MakeCase, margin: float, outcome: Outcome) -> None:
    case = make_case(margins=at((700, margin)))
    result = sampling.check_largest(case)
    assert (result.outcome, result.value, result.detail) == (outcome, margin, "rollout 0, token 700")
    assert sampling.check_margin(case).outcome == sampling.check_flips(case).outcome == Outcome.ACCEPT


@pytest.mark.parametrize(
    ("margins", "outcome"),
    [([9.0], Outcome.ACCEPT), ([0.2] * 4, Outcome.ACCEPT), ([0.2] * 5, Outcome.DROP), ([9.0] * 19, Outcome.SLASH)],
)
def test_many_margins_are_told_and_a_rare_far_one_counts_as_no_more(
    make_case: MakeCase, margins: list[float], outcome: Outcome
) -> None:
    """Up to 0.9 nats in all pass the mean, 3.6 aren't punished; the far one is for the check of the largest."""
    case = make_case(thresholds=CLIPPED, margins=at(*enumerate(margins)))
    result = sampling.check_margin(case)
    assert (result.outcome, result.num_audited) == (outcome, NUM_TOKENS)
    assert result.value == pytest.approx(len(margins) * 0.2 / NUM_TOKENS)
    assert sampling.check_largest(case).value == max(margins)


@pytest.mark.parametrize(
    ("num_flips", "outcome"), [(2, Outcome.ACCEPT), (3, Outcome.DROP), (4, Outcome.DROP), (5, Outcome.SLASH)]
)
def test_more_flips_than_noise_makes_are_refused(make_case: MakeCase, num_flips: int, outcome: Outcome) -> None:
    result = sampling.check_flips(make_case(margins=at(*((index, 1e-5) for index in range(num_flips)))))
    assert (result.outcome, result.value) == (outcome, num_flips)
    assert (result.reject_threshold, result.slash_threshold, result.num_audited) == (3, 5, NUM_TOKENS)


@pytest.mark.parametrize(("num_flips", "outcome"), [(25, Outcome.ACCEPT), (40, Outcome.SLASH)])
def test_whoever_takes_every_branch_is_told_from_noise(make_case: MakeCase, num_flips: int, outcome: Outcome) -> None:
    """40 near-ties, in a pool whose honest flips are so many that the count over all tokens says nothing."""
    loose = THRESHOLDS.model_copy(update={"sampling_flips": FlipTest(rate=0.05), "near_tie_nats": 0.1})
    ties = np.where(np.arange(NUM_TOKENS) < 40, 0.05, 5.0)
    flips = at(*((index, 0.05) for index in range(num_flips)))
    case = make_case(thresholds=loose, margins=flips, runner_up_margins=ties)
    assert sampling.check_flips(case).outcome == Outcome.ACCEPT
    result = sampling.check_ties(case)
    assert (result.outcome, result.num_audited, result.detail) == (outcome, 40, f"{num_flips} of 40 near-ties")


@pytest.mark.parametrize(
    ("num_up", "num_down", "outcome"),
    [(50, 50, Outcome.ACCEPT), (68, 32, Outcome.ACCEPT), (100, 0, Outcome.SLASH), (0, 100, Outcome.SLASH)]
    + [(30, 0, Outcome.ACCEPT), (60, 0, Outcome.DROP), (0, 0, Outcome.ACCEPT)],
)
def test_flips_that_all_lean_one_way_are_another_samplers(
    make_case: MakeCase, num_up: int, num_down: int, outcome: Outcome
) -> None:
    """In a pool whose honest flips are so many that their count says nothing."""
    loose = THRESHOLDS.model_copy(update={"sampling_flips": FlipTest(rate=0.05)})
    total = num_up + num_down
    flips = at(*((index, 0.05) for index in range(total)))
    gains = at(*((index, 1.0 if index < num_up else -1.0) for index in range(total)))
    case = make_case(thresholds=loose, margins=flips, logprobs=gains - 3.0, drawn_logprobs=np.full(NUM_TOKENS, -3.0))
    assert sampling.check_flips(case).outcome == Outcome.ACCEPT
    result = sampling.check_sides(case)
    assert (result.outcome, result.num_audited) == (outcome, total)
    assert result.value == max(num_up, num_down)


# Freedom


def test_without_near_ties_there_is_no_choice(make_case: MakeCase) -> None:
    assert sampling.check_freedom(make_case()).value == 0


def test_the_freedom_at_near_ties_is_what_the_flip_tests_leave(make_case: MakeCase) -> None:
    """20 choosable tokens of which 2 may be flipped: 20 · H(2 / 20) bits."""
    case = make_case(runner_up_margins=np.where(np.arange(NUM_TOKENS) < 20, 0.0005, 5.0))
    bits = 20 * -(0.1 * math.log2(0.1) + 0.9 * math.log2(0.9))
    result = sampling.check_freedom(case)
    assert result.value == pytest.approx(1000 * bits / NUM_TOKENS) and result.reject_threshold is None
    ways = sum(math.comb(20, flips) for flips in range(3))
    assert bits >= math.log2(ways)


def test_choices_that_the_largest_margin_forbids_are_no_freedom(make_case: MakeCase) -> None:
    assert sampling.check_freedom(make_case(runner_up_margins=np.full(NUM_TOKENS, 0.0011))).value == 0


def test_where_honest_flips_are_many_every_tie_is_a_bit(make_case: MakeCase) -> None:
    loose = THRESHOLDS.model_copy(update={"sampling_flips": FlipTest(rate=0.5)})
    case = make_case(thresholds=loose, runner_up_margins=np.full(NUM_TOKENS, 0.0005))
    assert sampling.check_freedom(case).value == pytest.approx(1000)


# Plausibility

FREE = SamplingRules(bound_to_seed=False)


def sampled_by_the_model(num_likely: int) -> dict[str, np.ndarray]:
    """Tokens of a distribution of 1,000 equal ones and 5 % in tokens of 1e-5, drawn as it says but for the tail."""
    surprisals = np.where(np.arange(NUM_TOKENS) < num_likely, -math.log(0.95 / 1000), -math.log(1e-5))
    entropy = 0.95 * -math.log(0.95 / 1000) + 0.05 * -math.log(1e-5)
    constant = np.ones(NUM_TOKENS)
    return {"logprobs": -surprisals, "entropies": entropy * constant, "tiny_probabilities": 0.05 * constant}


@pytest.mark.parametrize(("tail", "outcome"), [(0.05, Outcome.ACCEPT), (0.2, Outcome.DROP)])
def test_a_second_hump_of_unlikely_tokens_is_dropped(make_case: MakeCase, tail: float, outcome: Outcome) -> None:
    case = make_case(FREE, **sampled_by_the_model(round(NUM_TOKENS * (1 - tail))))
    result = plausibility.check_tail(case)
    assert result.outcome == outcome and result.value == pytest.approx(tail)
    assert result.reason == (None if outcome == Outcome.ACCEPT else RejectReason.SAMPLING_MISMATCH)
    assert plausibility.check_surprisal(case).outcome == outcome


def test_one_unlucky_token_is_no_hump(make_case: MakeCase) -> None:
    """A rollout of one token, which the model gave a thousandth."""
    case = make_case(FREE, logprobs=at((0, math.log(1e-3))), entropies=np.ones(NUM_TOKENS))
    found = measurements_of(case)
    first = RowStatistics(*(getattr(found.rows, name)[:1] for name in RowStatistics.__dataclass_fields__))
    single = replace(case, measurements=replace(found, lengths=(1,), rows=first))
    assert plausibility.check_surprisal(single).outcome == Outcome.ACCEPT
    assert plausibility.check_tail(single).outcome == Outcome.ACCEPT


def test_tokens_that_are_too_likely_are_dropped_as_well(make_case: MakeCase) -> None:
    """Greedy decoding: nothing in the tail, and less surprisal than the model expects."""
    case = make_case(FREE, **sampled_by_the_model(NUM_TOKENS - 1))
    assert plausibility.check_tail(case).outcome == Outcome.ACCEPT
    assert plausibility.check_surprisal(case).outcome == Outcome.DROP


@pytest.mark.parametrize("rules", [{"top_p": 0.9}, {"top_k": 50}])
def test_of_a_part_of_the_vocabulary_only_what_is_too_unlikely_is_dropped(
    make_case: MakeCase, rules: dict[str, float]
) -> None:
    """What top_p and top_k take away is unlikely: honest tokens look surer, and never less sure."""
    free = SamplingRules.model_validate({"bound_to_seed": False, **rules})
    for num_likely, outcome in ((NUM_TOKENS, Outcome.ACCEPT), (NUM_TOKENS * 8 // 10, Outcome.DROP)):
        case = make_case(free, **sampled_by_the_model(num_likely))
        assert (plausibility.check_tail(case).outcome, plausibility.check_surprisal(case).outcome) == (outcome, outcome)


def test_where_the_noise_says_more_it_is_reported_only(make_case: MakeCase) -> None:
    case = make_case(SamplingRules(), **sampled_by_the_model(NUM_TOKENS // 2))
    for check in (plausibility.check_tail, plausibility.check_surprisal):
        result = check(case)
        assert (result.outcome, result.reject_threshold) == (Outcome.ACCEPT, None) and result.value != 0


def test_nothing_is_said_of_noise_that_nobody_makes_again(make_case: MakeCase) -> None:
    case = make_case(FREE, margins=np.full(NUM_TOKENS, 9.0))
    for check in (
        sampling.check_margin,
        sampling.check_largest,
        sampling.check_flips,
        sampling.check_ties,
        sampling.check_sides,
    ):
        assert (check(case).outcome, check(case).value) == (Outcome.ACCEPT, None)


# Log-probs


@pytest.mark.parametrize(("limit", "outcome"), [(None, Outcome.ACCEPT), (Limit(reject=0.5), Outcome.DROP)])
def test_the_largest_error_of_a_logprob_counts_where_there_is_a_limit(
    make_case: MakeCase, limit: Limit | None, outcome: Outcome
) -> None:
    thresholds = THRESHOLDS.model_copy(update={"logprob_error_max": limit})
    case = make_case(thresholds=thresholds, logprobs=at((9, -1.0)))
    result = logprobs.check_largest(case)
    assert (result.outcome, result.value, result.detail) == (outcome, 1.0, "rollout 0, token 9")
    assert logprobs.check(case).outcome == Outcome.ACCEPT
