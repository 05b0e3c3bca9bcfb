"""Checkpoints: whole or not there, exact, in a format that others load, and where a run starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from traceback import StackSummary

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from protocol.errors import ConfigError, ProofpoolError
from protocol.forward import CausalLM
from protocol.weights import load_weights
from tests.unit.trainer.conftest import weights_of
from trainer.batch_file import BatchFile
from trainer.checkpoint import Checkpoint, CheckpointStore
from trainer.learner import Learner
from trainer.samples import TrainingBatch

MakeLearner = Callable[..., Learner]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def newest(store: CheckpointStore) -> Checkpoint:
    found = store.newest()
    assert found is not None
    return found


def test_resuming_is_exact_to_the_bit(
    make_learner: MakeLearner, batch: TrainingBatch, batch_file: BatchFile, store: CheckpointStore, tmp_path: Path
) -> None:
    straight = make_learner(warmup_steps=8)
    straight.learn(batch, 0)
    store.save(straight, 1, batch_file, tmp_path)
    expected = straight.learn(batch, 1)

    resumed = make_learner(warmup_steps=8)
    assert (newest(store).policy_version, newest(store).batch_number) == (1, 1)
    store.restore(newest(store), resumed)
    assert resumed.learn(batch, 1) == expected
    assert torch.equal(weights_of(resumed), weights_of(straight))


def test_resuming_without_the_optimizers_means_is_not(
    make_learner: MakeLearner, batch: TrainingBatch, store: CheckpointStore, tmp_path: Path
) -> None:
    straight = make_learner()
    straight.learn(batch, 0)
    store.save(straight, 1, None, tmp_path)
    straight.learn(batch, 1)
    resumed = make_learner()
    store.restore(newest(store), resumed)
    resumed.make_room(0)
    resumed.learn(batch, 1)
    assert not torch.equal(weights_of(resumed), weights_of(straight))


def test_the_base_model_is_resumed_with_a_fresh_optimizer(
    make_learner: MakeLearner, batch: TrainingBatch, store: CheckpointStore, tmp_path: Path
) -> None:
    straight, used = make_learner(), make_learner()
    used.learn(batch, 0)
    store.restore(store.save(make_learner(), 0, None, tmp_path), used)
    assert used.learn(batch, 0) == straight.learn(batch, 0)
    assert torch.equal(weights_of(used), weights_of(straight))


@pytest.mark.parametrize("part", ["trainer.checkpoint.save", "trainer.checkpoint.write_weights"])
def test_a_checkpoint_that_was_cut_short_is_not_seen(
    make_learner: MakeLearner, store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    before = store.save(make_learner(), 0, None, tmp_path)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(part, full)
        with pytest.raises(OSError, match="No space"):
            store.save(make_learner(), 1, None, tmp_path)
    assert newest(store) == before
    store.restore(before, make_learner())
    assert store.save(make_learner(), 1, None, tmp_path) == newest(store)


def test_old_checkpoints_are_dropped_and_published_weights_are_bf16(make_learner: MakeLearner, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", keep=2)
    saved = [store.save(make_learner(), version, None, tmp_path) for version in range(4)]
    assert [checkpoint.folder.exists() for checkpoint in saved] == [False, False, True, True]
    assert {w.dtype for w in load_weights(saved[-1].model_folder).values()} == {torch.bfloat16}


def test_transformers_loads_what_is_published_and_computes_the_same(
    make_learner: MakeLearner, batch: TrainingBatch, store: CheckpointStore, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    learner = make_learner()
    learner.learn(batch, 0)
    folder = store.save(learner, 1, None, tmp_path).model_folder
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    learner.model.set_weights(load_weights(folder))  # rounded to bf16, as theirs are
    tokens = batch.samples[0].tokens
    with torch.no_grad():
        ours = learner.model.logits(learner.model(tokens, [len(tokens)]))
        assert torch.allclose(theirs(tokens[None]).logits[0], ours, atol=1e-5)


@pytest.mark.parametrize("name", ["state/.metadata", "state/__0_0.distcp", "step.json"])
@pytest.mark.parametrize("damage", [None, b"", b"\xff" * 1000])
def test_a_damaged_checkpoint_is_named_and_the_one_before_resumes(
    make_learner: MakeLearner,
    store: CheckpointStore,
    tmp_path: Path,
    name: str,
    damage: bytes | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    learner = make_learner()
    for version in range(2):
        folder = store.save(learner, version, None, tmp_path).folder
    if damage is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(damage)
    with pytest.raises(ProofpoolError, match="can't be read") as found:
        store.restore(newest(store), learner)
    assert str(folder) in found.value.why and "CheckpointException" not in found.value.why
    assert damage is not None or not [line for line in caplog.records if line.levelname == "WARNING"], "torch's own"
    folder.rename(tmp_path / "away")
    assert newest(store).policy_version == 0
    store.restore(newest(store), learner)


def test_a_state_with_another_value_than_was_saved_isnt_gone_on_from(
    make_learner: MakeLearner, batch: TrainingBatch, store: CheckpointStore, tmp_path: Path
) -> None:
    learner = make_learner()
    store.save(learner, 0, None, tmp_path)
    learner.learn(batch, 0)
    checkpoint = store.save(learner, 1, None, tmp_path)
    store.resume(checkpoint, make_learner())
    file = next((checkpoint.folder / "state").glob("*.distcp"))
    data = bytearray(file.read_bytes())
    place = data.index(learner.state()["exp_avg.model.norm.weight"].numpy().tobytes())
    data[place + 1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(ProofpoolError, match="another state than was saved") as found:
        store.resume(newest(store), make_learner())
    assert str(checkpoint.folder) in found.value.why and "checkpoint before" in found.value.todo
    checkpoint.folder.rename(tmp_path / "away")
    store.resume(newest(store), make_learner())


def test_a_checkpoint_of_a_model_of_another_shape_is_said_to_be_that_and_not_damaged(
    make_learner: MakeLearner, make_model: Callable[[], CausalLM], store: CheckpointStore, tmp_path: Path
) -> None:
    learner = make_learner()
    checkpoint = store.save(learner, 0, None, tmp_path)
    config = learner.model.config.model_copy(update={"intermediate_size": 48})
    weights = {name: torch.zeros(shape) for name, shape in config.weight_shapes().items()}
    with pytest.raises(ConfigError, match="of another model than base_model") as refused:
        store.restore(checkpoint, Learner(CausalLM.of(config, weights), learner.recipe))
    assert "mlp" in refused.value.why and "data_dir of its own" in refused.value.todo
    store.restore(checkpoint, Learner(make_model(), learner.recipe))


def test_a_full_disk_is_told_with_what_it_has_left_and_nothing_whole_is_lost(
    make_learner: MakeLearner, store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner()
    store.save(learner, 0, None, tmp_path)

    def full(*arguments: object, **named: object) -> None:
        raise CheckpointException("save", {0: (RuntimeError("unexpected pos 704 vs 598"), StackSummary())})

    with monkeypatch.context() as patch:
        patch.setattr("trainer.checkpoint.save", full)
        with pytest.raises(OSError, match=r"rank 0 couldn't write .*whose disk has [0-9,]+ bytes left: unexpected pos"):
            store.save(learner, 1, None, tmp_path)
    assert newest(store).policy_version == 0
    assert store.save(learner, 1, None, tmp_path).policy_version == 1


def test_the_record_is_published_with_the_weights_and_says_what_they_were_made_of(
    make_learner: MakeLearner, batch: TrainingBatch, batch_file: BatchFile, store: CheckpointStore, tmp_path: Path
) -> None:
    learner = make_learner()
    base = store.save(learner, 0, None, tmp_path)
    learner.learn(batch, 0)
    made = store.save(learner, 1, batch_file, tmp_path, base)
    published = json.loads((made.model_folder / "training.json").read_text())
    assert published == made.record.model_dump(mode="json")
    assert published["before"] == base.record.state.model_dump()
    assert published["batch"]["file_sha256"] == batch_file.offer.file_sha256
    assert published["num_updates"] == 2
    assert base.record.before is base.record.batch is None
    assert BatchFile.load(made.folder / "batch").data == batch_file.data


def test_a_states_hash_is_of_its_values(
    make_learner: MakeLearner, batch: TrainingBatch, store: CheckpointStore, tmp_path: Path
) -> None:
    learner = make_learner()
    hashes = [store.save(learner, version, None, tmp_path).record.state for version in range(2)]
    assert hashes[0] == hashes[1]
    learner.learn(batch, 1)
    trained = store.save(learner, 2, None, tmp_path).record.state
    assert trained.weights != hashes[0].weights and trained.optimizer != hashes[0].optimizer


def test_a_run_starts_at_the_newest_anew_or_at_a_version(
    make_learner: MakeLearner, store: CheckpointStore, tmp_path: Path
) -> None:
    assert store.start("newest") is None and store.start("anew") is None
    for version in range(3):
        store.save(make_learner(), version, None, tmp_path)
    assert store.start("newest") == newest(store)
    with pytest.raises(ConfigError, match="can't start anew"):
        store.start("anew")
    with pytest.raises(ConfigError, match="no checkpoint of policy version 7"):
        store.start(7)
    start = store.start(1)
    assert start is not None and start.policy_version == 1
    assert list(store.versions()) == [0, 1]
    assert (store.root / "2.aside").is_dir()


def test_a_folder_with_another_versions_name_is_refused(make_learner: Callable[..., Learner], tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    for version in range(2):
        store.save(make_learner(), version, None, tmp_path)
    (store.root / "1").rename(store.root / "7")
    looks: list[Callable[[], object]] = [
        lambda: store.of(7),
        store.newest,
        lambda: store.start("newest"),
        lambda: store.peek("newest"),
        lambda: store.peek(7),
    ]
    for look in looks:
        with pytest.raises(ProofpoolError, match="name of another policy version.*7/step.json is of version 1"):
            look()
    assert store.of(0).policy_version == 0
    (store.root / "7").rename(store.root / "1")
    assert store.of(1).policy_version == 1


@pytest.mark.parametrize("name", ["07", "²", "1.aside", "-1", "one"])
def test_other_names_are_no_checkpoints(make_learner: Callable[..., Learner], tmp_path: Path, name: str) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(make_learner(), 0, None, tmp_path)
    (store.root / name).mkdir()
    (store.root / "5").write_text("a file")
    assert list(store.versions()) == [0]
