"""A very small model and batches for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
import torch

from protocol.api import BatchOffer, GroupRef
from protocol.batches import groups_root
from protocol.canonical import hex0x
from protocol.forward import CausalLM
from protocol.rollouts import FileHeader, Rollout, write_rollouts
from protocol.rules import EnvironmentRules, FlipTest, Limit, Rules, SamplingRules, Thresholds
from protocol.signing import Signer, SigningDomain
from protocol.weights import ModelConfig
from protocol.wire import ZERO_HASH, Batch
from trainer.batch_file import BatchFile
from trainer.learner import Learner, RecipeConfig
from trainer.samples import Limits, TrainingBatch, read_batch

GROUP_SIZE = 4
VOCABULARY = 11
LIMITS = Limits(VOCABULARY, max_positions=64)
COORDINATOR = Signer(b"\2" * 32)


@pytest.fixture
def rules() -> Rules:
    limit = Limit(reject=1.0, slash=2.0)
    return Rules(
        environment=EnvironmentRules(name="test", environment_hash=ZERO_HASH),
        sampling=SamplingRules(max_new_tokens=12),
        thresholds=Thresholds(
            toploc_exp_mismatch_share=limit,
            toploc_mantissa_mean=limit,
            sampling_margin_mean=limit,
            sampling_margin_max=limit,
            sampling_flips=FlipTest(rate=0.00001),
            logprob_error_mean=limit,
        ),
        group_size=GROUP_SIZE,
        groups_per_task=2,
    )


@pytest.fixture
def make_model() -> Callable[[], CausalLM]:
    """The same small random model each time."""

    def make() -> CausalLM:
        config = ModelConfig.model_validate(
            {
                "model_type": "llama",
                "vocab_size": VOCABULARY,
                "hidden_size": 16,
                "intermediate_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "max_position_embeddings": 64,
                "tie_word_embeddings": True,
            }
        )
        generator = torch.Generator().manual_seed(0)
        weights = {
            name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * 0.2
            for name, shape in config.weight_shapes().items()
        }
        return CausalLM.of(config, weights)

    return make


@pytest.fixture
def make_rollout() -> Callable[..., Rollout]:
    def make(number: int = 0, reward: float = 0.0, target_length: int = -1, version: int = 0) -> Rollout:
        random = np.random.default_rng(number)
        num_outputs = 2 + number % 5
        return Rollout(
            input_tokens=random.integers(0, VOCABULARY, 3 + number % 3).astype(np.int32),
            output_tokens=random.integers(0, VOCABULARY, num_outputs).astype(np.int32),
            output_logprobs=np.zeros(num_outputs, dtype=np.float32),
            task_reward=reward,
            proofs=b"",
            step=version,
            problem_id=str(number // GROUP_SIZE),
            task_type="test",
            target_length=target_length,
            finish_reason="length",
        )

    return make


@pytest.fixture
def make_offer(
    make_rollout: Callable[..., Rollout], rules: Rules, domain: SigningDomain
) -> Callable[..., tuple[BatchOffer, bytes]]:
    """A batch of two groups for `step`, with its file; `first` is put in the place of the first rollout."""

    def make(
        step: int = 1, first: Rollout | None = None, version: int = 0, number: int | None = None
    ) -> tuple[BatchOffer, bytes]:
        rollouts = [
            make_rollout(number, reward=float(number % 3 == 0), version=version) for number in range(2 * GROUP_SIZE)
        ]
        rollouts[:1] = [first or rollouts[0]]
        header = FileHeader(task_id=ZERO_HASH, group_size=GROUP_SIZE, sampling=SamplingRules(max_new_tokens=12))
        file = write_rollouts(header, rollouts)
        number = step if number is None else number
        submission = hex0x(number.to_bytes(32, "big"))
        keys = [(submission, 0), (submission, 1)]
        message = Batch(pool_id=1, number=number, step=step, groups_root=groups_root(keys))
        offer = BatchOffer(
            pool_id=message.pool_id,
            number=message.number,
            step=message.step,
            groups=tuple(GroupRef(submission_id=submission_id, group=group) for submission_id, group in keys),
            groups_root=message.groups_root,
            rules_hash=rules.rules_hash,
            signature=COORDINATOR.sign(message, domain),
            file_sha256=hex0x(hashlib.sha256(file).digest()),
            num_rollouts=len(rollouts),
            num_tokens=sum(r.num_units + len(r.input_tokens) for r in rollouts),
            deadline=0,
        )
        return offer, file

    return make


@pytest.fixture
def batch(make_offer: Callable[..., tuple[BatchOffer, bytes]], rules: Rules) -> TrainingBatch:
    return read_batch(*make_offer(), rules, LIMITS)


@pytest.fixture
def make_learner(make_model: Callable[[], CausalLM]) -> Callable[..., Learner]:
    def make(**recipe: object) -> Learner:
        settings = {"learning_rate": 1e-3, "optimizer_steps": 2, "warmup_steps": 0, "grad_norm_clip": 1.0} | recipe
        return Learner(make_model(), RecipeConfig.model_validate(settings))

    return make


def weights_of(learner: Learner) -> torch.Tensor:
    return torch.cat([w.flatten() for w in learner.model.weights().values()])


@pytest.fixture
def batch_file(make_offer: Callable[..., tuple[BatchOffer, bytes]], rules: Rules) -> BatchFile:
    """Of step 1."""
    offer, data = make_offer()
    return BatchFile(offer, rules, data)
