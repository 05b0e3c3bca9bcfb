"""A step: what it moves, that packing doesn't change it, and that resuming is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protocol.api import BatchOffer
from protocol.errors import ProofpoolError
from protocol.forward import CausalLM
from protocol.rules import Rules
from protocol.weights import load_weights
from tests.unit.trainer.conftest import VOCABULARY
from trainer.checkpoint import CheckpointStore
from trainer.learner import Learner, RecipeConfig
from trainer.samples import TrainingBatch, read_batch

Offer = tuple[BatchOffer, bytes]


@pytest.fixture
def batch(make_offer: Callable[..., Offer], rules: Rules) -> TrainingBatch:
    return read_batch(*make_offer(), rules, VOCABULARY)


@pytest.fixture
def make_learner(make_model: Callable[[], CausalLM]) -> Callable[..., Learner]:
    def make(**recipe: object) -> Learner:
        settings = {"learning_rate": 1e-3, "optimizer_steps": 2, "warmup_steps": 0, "grad_norm_clip": 1.0} | recipe
        return Learner(make_model(), RecipeConfig.model_validate(settings))

    return make


def weights_of(learner: Learner) -> torch.Tensor:
    return torch.cat([w.flatten() for w in learner.model.weights().values()])


def test_steps_make_rewarded_completions_likelier(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    learner = make_learner()
    before = learner.logprobs(batch)
    for version in range(5):
        learner.learn(batch, version)
    after = learner.logprobs(batch)
    gain = [s.advantage * float((a - b).mean()) for s, a, b in zip(batch.samples, after, before, strict=True)]
    assert sum(gain) > 0


def test_without_advantage_nothing_moves(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    learner = make_learner(weight_decay=0.0)
    before = weights_of(learner)
    flat = [replace(sample, advantage=0.0) for sample in batch.samples]
    learner.learn(replace(batch, samples=flat), 0)
    assert torch.equal(weights_of(learner), before)


def test_a_step_is_the_same_however_it_is_packed(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    together, alone = make_learner(), make_learner(max_tokens=1)
    first, second = together.learn(batch, 0), alone.learn(batch, 0)
    assert first.objective == pytest.approx(second.objective, abs=1e-6)
    assert torch.allclose(weights_of(together), weights_of(alone), atol=1e-5)


def test_figures_describe_the_batch(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    figures = make_learner().learn(batch, 2)
    assert figures.num_rollouts == len(batch.samples)
    assert figures.mean_policy_lag == 2
    assert figures.mean_task_reward == pytest.approx(sum(s.task_reward for s in batch.samples) / len(batch.samples))
    assert figures.kl_to_old >= 0
    assert figures.entropy > 0


def test_resuming_from_a_checkpoint_is_exact_to_the_bit(
    make_learner: Callable[..., Learner], batch: TrainingBatch, tmp_path: Path
) -> None:
    straight = make_learner()
    straight.learn(batch, 0)
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(straight, 1, 7, tmp_path)
    straight.learn(batch, 1)

    resumed = make_learner()
    checkpoint = store.newest()
    assert checkpoint is not None
    assert (checkpoint.policy_version, checkpoint.batch_number) == (1, 7)
    store.restore(checkpoint, resumed)
    resumed.learn(batch, 1)
    assert torch.equal(weights_of(resumed), weights_of(straight))


def test_a_checkpoint_that_was_cut_short_is_not_seen(
    make_learner: Callable[..., Learner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(make_learner(), 0, None, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("torch.save", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            store.save(make_learner(), 1, 0, tmp_path)
    newest = store.newest()
    assert newest is not None
    assert newest.policy_version == 0
    assert store.save(make_learner(), 1, 0, tmp_path).policy_version == 1


def test_old_checkpoints_are_dropped_and_published_weights_are_bf16(
    make_learner: Callable[..., Learner], tmp_path: Path
) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", keep=2)
    saved = [store.save(make_learner(), version, None, tmp_path) for version in range(4)]
    assert [checkpoint.folder.exists() for checkpoint in saved] == [False, False, True, True]
    assert {w.dtype for w in load_weights(saved[-1].model_folder).values()} == {torch.bfloat16}


@pytest.mark.parametrize("name", ["state.pt", "step.json"])
@pytest.mark.parametrize("damage", [None, b"", b"\xff" * 1000])
def test_a_damaged_checkpoint_is_named_and_the_one_before_resumes(
    make_learner: Callable[..., Learner], tmp_path: Path, name: str, damage: bytes | None
) -> None:
    store, learner = CheckpointStore(tmp_path / "checkpoints"), make_learner()
    for version in range(2):
        folder = store.save(learner, version, None, tmp_path).folder
    if damage is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(damage)
    with pytest.raises(ProofpoolError, match="can't be read") as found:
        newest = store.newest()
        assert newest is not None
        store.restore(newest, learner)
    assert str(folder) in found.value.why
    folder.rename(tmp_path / "away")
    newest = store.newest()
    assert newest is not None and newest.policy_version == 0
    store.restore(newest, learner)
