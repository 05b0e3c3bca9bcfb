"""From a batch file to packed samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protocol.api import BatchOffer
from protocol.errors import VerificationFailed
from protocol.rollouts import Rollout
from protocol.rules import LengthRules, Rules
from trainer.samples import Sample, pack, read_batch, split_groups, total_reward

Offer = tuple[BatchOffer, bytes]


def sample_of(length: int) -> Sample:
    return Sample(torch.zeros(length, dtype=torch.int64), 1, 0.0, 0.0, 0)


def test_samples_carry_the_files_tokens_and_derived_advantages(
    make_offer: Callable[..., Offer], make_rollout: Callable[..., Rollout], rules: Rules
) -> None:
    offer, file = make_offer()
    batch = read_batch(offer, file, rules)
    samples = batch.samples
    assert (batch.group_size, batch.temperature) == (4, 1.0)
    first = make_rollout(0)
    assert samples[0].tokens.tolist() == first.input_tokens.tolist() + first.output_tokens.tolist()
    assert sum(sample.advantage for sample in samples[:4]) == pytest.approx(0, abs=1e-5)
    assert samples[0].advantage > 0 > samples[1].advantage


def test_another_file_than_the_offered_one_is_refused(make_offer: Callable[..., Offer], rules: Rules) -> None:
    offer, file = make_offer()
    with pytest.raises(VerificationFailed, match="isn't the one offered"):
        read_batch(offer, file + b"x", rules)


def test_a_batch_with_fewer_rollouts_than_its_groups_is_refused(make_offer: Callable[..., Offer], rules: Rules) -> None:
    offer, file = make_offer()
    with pytest.raises(VerificationFailed, match="groups it names"):
        read_batch(offer.model_copy(update={"groups": offer.groups[:1]}), file, rules)


def test_length_penalty_counts_only_where_the_prompt_set_a_target(make_rollout: Callable[..., Rollout]) -> None:
    lengths = LengthRules(targets=(10,), penalty_per_token=0.1)
    assert total_reward(make_rollout(0, reward=1.0), lengths) == 1.0
    assert total_reward(make_rollout(0, reward=1.0, target_length=10), lengths) == pytest.approx(1.0 - 0.1 * 8)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 64))
def test_packing_keeps_every_sample_once_and_its_bins_under_the_budget(lengths: list[int], budget: int) -> None:
    samples = [sample_of(length) for length in lengths]
    bins = pack(samples, budget)
    assert sorted(id(s) for b in bins for s in b) == sorted(id(s) for s in samples)
    assert all(sum(map(len, b)) <= budget or len(b) == 1 for b in bins)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 8))
def test_splitting_deals_whole_groups_once(num_groups: int, size: int, num_parts: int) -> None:
    samples = [sample_of(1 + index) for index in range(num_groups * size)]
    parts = split_groups(samples, size, num_parts)
    assert sorted(len(s) for part in parts for s in part) == [len(s) for s in samples]
    assert all(part and len(part) % size == 0 for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= size
