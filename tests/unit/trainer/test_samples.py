"""From a batch file to samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.api import BatchOffer, GroupRef
from protocol.errors import VerificationFailed
from protocol.rollouts import Rollout
from protocol.rules import LengthRules, Rules
from protocol.weights import ModelConfig
from tests.unit.trainer.conftest import LIMITS, VOCABULARY
from trainer.batch_file import BatchFile
from trainer.figures import length_errors
from trainer.samples import UnfitRow, batch_of, fault_of, read_batch, split_groups

Offer = tuple[BatchOffer, bytes]


def test_samples_carry_the_files_tokens_and_derived_advantages(
    make_offer: Callable[..., Offer], make_rollout: Callable[..., Rollout], rules: Rules
) -> None:
    offer, file = make_offer()
    batch = read_batch(offer, file, rules, LIMITS)
    samples = batch.samples
    assert (batch.group_size, batch.temperature) == (4, 1.0)
    first = make_rollout(0)
    assert samples[0].tokens.tolist() == first.input_tokens.tolist() + first.output_tokens.tolist()
    assert sum(sample.advantage for sample in samples[:4]) == pytest.approx(0, abs=1e-5)
    assert samples[0].advantage > 0 > samples[1].advantage


def test_a_prompt_may_be_longer_than_all_outputs_of_a_batch(
    make_offer: Callable[..., Offer], make_rollout: Callable[..., Rollout], rules: Rules
) -> None:
    prompt = np.full(LIMITS.max_positions - 12, 3, dtype=np.int32)
    offer, file = make_offer(first=replace(make_rollout(0), input_tokens=prompt))
    num_outputs = sum(make_rollout(number).num_units for number in range(offer.num_rollouts))
    assert num_outputs < len(prompt)
    batch = read_batch(offer.model_copy(update={"num_tokens": num_outputs}), file, rules, LIMITS)
    assert len(batch.samples[0].tokens) > num_outputs


def test_of_equal_task_rewards_the_one_nearer_its_target_length_gains(
    make_rollout: Callable[..., Rollout], rules: Rules
) -> None:
    rollouts = [replace(make_rollout(number, reward=1.0), target_length=4) for number in range(4)]
    assert [rollout.num_units for rollout in rollouts] == [2, 3, 4, 5]
    targeted = rules.model_copy(update={"lengths": LengthRules(targets=(4,), penalty_per_token=0.1)})
    batch = batch_of(rollouts, targeted)
    assert [sample.length_penalty for sample in batch.samples] == pytest.approx([0.2, 0.1, 0.0, 0.1])
    rewards = [0.8, 0.9, 1.0, 0.9]
    expected = [(reward - 0.9) / (0.02 / 3) ** 0.5 for reward in rewards]
    assert [sample.advantage for sample in batch.samples] == pytest.approx(expected, abs=1e-4)
    assert [sample.advantage for sample in batch_of(rollouts, rules).samples] == [0.0] * 4


def test_how_well_lengths_are_kept_is_said_by_target(make_rollout: Callable[..., Rollout], rules: Rules) -> None:
    targets = [4, 4, 4, 10, 10, 10, -1, -1]
    rollouts = [make_rollout(number, target_length=target) for number, target in enumerate(targets)]
    assert [rollout.num_units for rollout in rollouts] == [2, 3, 4, 5, 6, 2, 3, 4]
    samples = batch_of(rollouts, rules).samples
    assert length_errors(samples, 0.5) == {"4": 1.0, "10": 5.0}
    assert length_errors(samples, 1.0) == {"4": 2.0, "10": 8.0}
    assert length_errors(samples[6:], 0.5) == {}, "no target is asked for"


def test_another_file_than_the_offered_one_is_refused(make_offer: Callable[..., Offer], rules: Rules) -> None:
    offer, file = make_offer()
    with pytest.raises(VerificationFailed, match="isn't the one offered"):
        read_batch(offer, file + b"x", rules, LIMITS)


def test_a_batch_with_fewer_rollouts_than_its_groups_is_refused(make_offer: Callable[..., Offer], rules: Rules) -> None:
    offer, file = make_offer()
    with pytest.raises(VerificationFailed, match="groups it names"):
        read_batch(offer.model_copy(update={"groups": offer.groups[:1]}), file, rules, LIMITS)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"output_logprobs": np.array([0.0, np.nan], dtype=np.float32)}, "finite number"),
        ({"output_logprobs": np.zeros(1, dtype=np.float32)}, "one finite number a token"),
        ({"output_tokens": np.array([], dtype=np.int32)}, "0 output tokens"),
        ({"input_tokens": np.array([], dtype=np.int32)}, "0 prompt"),
        ({"output_tokens": np.array([3, VOCABULARY], dtype=np.int32)}, f"a token id of 0 to {VOCABULARY}"),
        ({"output_tokens": np.array([3, -1], dtype=np.int32)}, "a token id of -1"),
        ({"input_tokens": np.array([VOCABULARY + 5], dtype=np.int32)}, "the model has"),
        ({"output_tokens": np.zeros(13, dtype=np.int32)}, "13 output tokens, the rules allow 12"),
        ({"task_reward": float("nan")}, "a task reward of nan"),
        ({"task_reward": float("inf")}, "a task reward of inf"),
        ({"task_reward": 1e7}, "a task reward of 1e+07"),
        ({"output_logprobs": np.array([0.0, 50.0], dtype=np.float32)}, "log-probs of 0 to 50"),
        ({"output_logprobs": np.array([0.0, -3e38], dtype=np.float32)}, "log-probs of -3e+38 to 0"),
        ({"input_tokens": np.zeros(63, dtype=np.int32)}, "63 prompt and 2 output tokens, the model has 64 positions"),
        ({"step": 1}, "policy version 1 in the batch of step 1"),
        ({"step": -1}, "policy version -1"),
    ],
)
def test_a_row_that_would_poison_the_weights_is_named(
    make_rollout: Callable[..., Rollout], rules: Rules, changes: dict[str, Any], fault: str
) -> None:
    sound = replace(
        make_rollout(0), input_tokens=np.array([0, 1], dtype=np.int32), output_tokens=np.array([2, 3], dtype=np.int32)
    )
    assert fault_of(sound, rules, LIMITS, step=1) is None
    found = fault_of(replace(sound, **changes), rules, LIMITS, step=1)
    assert found is not None and fault in found


def test_a_rollout_older_than_the_pool_allows_is_unfit(make_rollout: Callable[..., Rollout], rules: Rules) -> None:
    limits = replace(LIMITS, oldest_version=3)
    assert fault_of(make_rollout(0, version=3), rules, limits, step=6) is None
    fault = fault_of(make_rollout(0, version=2), rules, limits, step=6)
    assert fault == "policy version 2, the pool's max_async allows 3 and later"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"output_logprobs": np.array([0.0, np.nan], dtype=np.float32)}, "a number that isn't finite"),
        ({"output_logprobs": np.array([-np.inf, 0.0], dtype=np.float32)}, "a number that isn't finite"),
        ({"task_reward": float("nan")}, "a number that isn't finite"),
        (
            {"output_tokens": np.array([], dtype=np.int32), "output_logprobs": np.array([], dtype=np.float32)},
            r"wrong lengths: prompt, completion, log-probs = \(3, 0, 0\)",
        ),
        ({"output_logprobs": np.zeros(1, dtype=np.float32)}, r"= \(3, 2, 1\)"),
        ({"finish_reason": "tired"}, "unknown finish reason: tired"),
    ],
)
def test_a_row_that_the_file_format_refuses_is_named_with_its_submission_as_well(
    make_offer: Callable[..., Offer],
    make_rollout: Callable[..., Rollout],
    rules: Rules,
    changes: dict[str, Any],
    fault: str,
) -> None:
    offer, file = make_offer(first=replace(make_rollout(0), **changes))
    named = GroupRef(submission_id="0x" + "7" * 64, group=1)
    offer = offer.model_copy(update={"groups": (named, *offer.groups[1:])})
    with pytest.raises(UnfitRow, match=fault) as refused:
        read_batch(offer, file, rules, LIMITS)
    assert refused.value.submission_id == named.submission_id


def test_a_bad_row_past_the_offered_groups_is_the_files_fault(
    make_offer: Callable[..., Offer], make_rollout: Callable[..., Rollout], rules: Rules
) -> None:
    offer, file = make_offer(first=replace(make_rollout(0), task_reward=float("nan")))
    with pytest.raises(VerificationFailed, match="groups it names") as refused:
        read_batch(offer.model_copy(update={"groups": ()}), file, rules, LIMITS)
    assert not isinstance(refused.value, UnfitRow)


def test_what_isnt_one_rows_fault_names_the_batch_and_what_to_do(batch_file: BatchFile) -> None:
    model = ModelConfig(
        model_type="llama",
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    assert batch_file.read(model).samples
    with pytest.raises(VerificationFailed, match="batch 1 of step 1 can't be trained on") as refused:
        replace(batch_file, data=batch_file.data[:-9]).read(model)
    assert "isn't the one offered" in refused.value.why and "start again" in refused.value.todo


def test_a_batch_with_a_bad_row_is_refused_with_its_submission(make_offer: Callable[..., Offer], rules: Rules) -> None:
    offer, file = make_offer()
    named = GroupRef(submission_id="0x" + "7" * 64, group=1)
    offer = offer.model_copy(update={"groups": (named, *offer.groups[1:])})
    with pytest.raises(VerificationFailed, match="can't be trained on") as refused:
        read_batch(offer, file, rules, replace(LIMITS, vocab_size=VOCABULARY - 1))
    assert named.submission_id in refused.value.why
    assert len(read_batch(offer, file, rules, LIMITS).samples) == offer.num_rollouts


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 8))
def test_splitting_deals_whole_groups_once(num_groups: int, size: int, num_parts: int) -> None:
    parts = split_groups(num_groups * size, size, num_parts)
    assert sorted(place for part in parts for place in part) == list(range(num_groups * size))
    assert all(part and len(part) % size == 0 for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= size
