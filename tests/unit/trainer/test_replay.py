"""A step taken again: honest ones come out to the bit, and what was done otherwise is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from protocol.cli import run
from protocol.errors import ProofpoolError, UsageError, VerificationFailed
from protocol.forward import CausalLM
from protocol.weights import load_weights, save_checkpoint
from tests.documents import fitting
from trainer.batch_file import BatchFile
from trainer.checkpoint import CheckpointStore
from trainer.learner import Learner, RecipeConfig
from trainer.ranks import ALONE
from trainer.replay import Replayer, replay_from
from trainer.samples import TrainingBatch

MakeLearner = Callable[..., Learner]


@pytest.fixture
def take(make_learner: MakeLearner, batch: TrainingBatch, batch_file: BatchFile, tmp_path: Path) -> Callable[..., Path]:
    """Two steps, as a trainer takes and keeps them; `cheat` is done to the learner before the last one is saved."""

    def make(cheat: Callable[[Learner], None] = lambda learner: None, learner: Learner | None = None) -> Path:
        learner = learner or make_learner()
        store = CheckpointStore(tmp_path / "checkpoints")
        checkpoint = store.save(learner, 0, None, tmp_path)
        for version in (1, 2):
            learner.learn(batch, checkpoint.policy_version)
            if version == 2:
                cheat(learner)
            checkpoint = store.save(learner, version, batch_file, tmp_path, checkpoint)
        return store.root

    return make


def nudge(learner: Learner) -> None:
    """One value, by the least there is."""
    with torch.no_grad():
        bias = learner.model.model.norm.weight
        bias[3] = torch.nextafter(bias[3], torch.tensor(2.0))


@pytest.mark.parametrize("version", [1, 2])
def test_an_honest_step_comes_out_to_the_bit(take: Callable[..., Path], version: int) -> None:
    found = replay_from(take(), version, None, None, 0.0)
    assert found.holds and found.first_difference is None
    assert found.found == found.recorded
    assert found.num_tensors == 4 * 20  # weights, two means, published weights
    assert found.other_arithmetic == []


def test_the_first_tensor_that_the_step_doesnt_make_is_named(take: Callable[..., Path]) -> None:
    root = take(nudge)
    found = replay_from(root, 2, None, None, 0.0)
    assert not found.holds and found.first_difference is not None and found.found != found.recorded
    assert (found.first_difference.tensor, found.first_difference.num_different) == ("weights.model.norm.weight", 1)
    assert replay_from(root, 2, None, None, 1e-6).holds
    assert replay_from(root, 1, None, None, 0.0).holds


def test_more_steps_than_the_recipe_has_dont_come_out(take: Callable[..., Path], batch: TrainingBatch) -> None:
    found = replay_from(take(lambda learner: print(learner.learn(batch, 2))), 2, None, None, 1e-6)
    assert not found.holds


def test_other_published_weights_than_the_states_are_named(take: Callable[..., Path]) -> None:
    root = take()
    folder, config = root / "2" / "model", CausalLM.load(root / "2" / "model").config
    weights = load_weights(folder)
    weights["model.norm.weight"][0] += 1
    save_checkpoint(root / "other", config, weights)
    shutil.copy(root / "other" / "model.safetensors", folder / "model.safetensors")
    found = replay_from(root, 2, None, None, 0.0)
    assert found.first_difference is not None
    assert found.first_difference.tensor == "published.model.norm.weight"


def test_another_batch_than_the_recorded_one_is_refused(
    take: Callable[..., Path], batch_file: BatchFile, make_offer: Callable[..., tuple[object, bytes]]
) -> None:
    root = take()
    assert replay_from(root, 2, batch_file.data, None, 0.0).holds
    with pytest.raises(VerificationFailed, match="rollout file"):
        replay_from(root, 2, batch_file.data + b"\0", None, 0.0)


def test_a_list_of_other_groups_than_the_batchs_is_refused(take: Callable[..., Path]) -> None:
    """The root that is recorded is kept: the list beside it is another."""
    root = take()
    file = root / "2" / "batch" / "offer.json"
    offer = json.loads(file.read_text())
    offer["groups"][0]["group"] = 7
    file.write_text(json.dumps(offer))
    with pytest.raises(VerificationFailed, match="list of the batch's groups"):
        replay_from(root, 2, None, None, 0.0)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"before": {"weights": "0x" + "11" * 32, "optimizer": "0x" + "11" * 32}}, "state of the version before"),
        ({"state": {"weights": "0x" + "11" * 32, "optimizer": "0x" + "11" * 32}}, "state of the version"),
    ],
)
def test_a_state_that_isnt_the_recorded_one_is_refused(
    take: Callable[..., Path], change: dict[str, object], what: str
) -> None:
    root = take()
    for file in (root / "2" / "step.json", root / "2" / "model" / "training.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(VerificationFailed, match=what):
        replay_from(root, 2, None, None, 0.0)


def test_another_record_than_the_published_one_is_refused(take: Callable[..., Path]) -> None:
    root = take()
    file = root / "2" / "step.json"
    record = json.loads(file.read_text())
    record["recipe"]["learning_rate"] = 1.0
    file.write_text(json.dumps(record))
    with pytest.raises(VerificationFailed, match="the record"):
        replay_from(root, 2, None, None, 0.0)


@pytest.mark.parametrize("text", [None, "", "{", '{"schema_version": 3}'])
def test_a_published_record_that_cant_be_read_is_named(take: Callable[..., Path], text: str | None) -> None:
    root = take()
    file = root / "2" / "model" / "training.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(VerificationFailed, match="can't be read") as refused:
        replay_from(root, 2, None, None, 0.0)
    assert str(file) in refused.value.why


def test_a_recipe_with_a_reference_needs_that_model(
    take: Callable[..., Path], make_model: Callable[[], CausalLM], tmp_path: Path
) -> None:
    base, other = make_model(), make_model()
    with torch.no_grad():
        other.model.norm.weight += 1
    for name, model in (("base", base), ("other", other)):
        save_checkpoint(tmp_path / name, model.config, model.weights())
    recipe = RecipeConfig.model_validate({"optimizer_steps": 1, "objective": {"kl_coefficient": 0.5}})
    root = take(learner=Learner(make_model(), recipe, make_model().requires_grad_(False)))
    assert replay_from(root, 2, None, tmp_path / "base", 0.0).holds
    with pytest.raises(UsageError, match="holds to a reference"):
        replay_from(root, 2, None, None, 0.0)
    with pytest.raises(VerificationFailed, match="the reference"):
        replay_from(root, 2, None, tmp_path / "other", 0.0)


def test_what_no_step_made_or_nobody_kept_cant_be_replayed(take: Callable[..., Path], tmp_path: Path) -> None:
    root = take()
    with pytest.raises(UsageError, match="no step made"):
        Replayer(CheckpointStore(root), ALONE).replay(0)
    with pytest.raises(ProofpoolError, match="no checkpoint of policy version 3"):
        replay_from(root, 3, None, None, 0.0)
    shutil.rmtree(root / "0")
    with pytest.raises(ProofpoolError, match="no checkpoint of policy version 0"):
        replay_from(root, 1, None, None, 0.0)
    with pytest.raises(UsageError, match="no such folder"):
        replay_from(tmp_path / "nowhere", 1, None, None, 0.0)


def test_the_command_prints_and_ends_with_what_it_found(
    take: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = take(nudge)
    command = ["audit", "replay-step", "--checkpoints", str(root)]
    assert run([*command, "1"]) == 0
    assert "✓ policy version 1 comes out, equal to the bit" in capsys.readouterr().out
    assert run([*command, "2"]) == 3
    assert "weights.model.norm.weight: 1 of 16 values" in capsys.readouterr().out
    assert run([*command, "2", "--json"]) == 3
    assert fitting("audit replay-step", capsys.readouterr().out)["holds"] is False
    assert run([*command, "1", "--batch", str(root / "1" / "batch" / "rollouts.parquet")]) == 0
    assert run([*command, "1", "--batch", str(root), "--coordinator", "http://nowhere"]) == 2
