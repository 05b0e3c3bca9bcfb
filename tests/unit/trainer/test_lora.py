"""Adapters: they alone are trained, what is published has them merged, and runs resume and replay as others do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from protocol.errors import ConfigError, UsageError, VerificationFailed
from protocol.forward import CausalLM
from protocol.weights import ModelConfig, load_weights, save_checkpoint
from tests.unit.trainer.conftest import weights_of
from trainer.batch_file import BatchFile
from trainer.checkpoint import CheckpointStore
from trainer.learner import Learner, RecipeConfig
from trainer.lora import TARGETS, Adapted, LoraConfig, first_values, is_adapter, num_adapter_parameters, switched_off
from trainer.memory import estimate_memory
from trainer.policy import Policy
from trainer.ranks import ALONE, ScaleConfig
from trainer.replay import replay_from
from trainer.samples import TrainingBatch

LORA: dict[str, Any] = {"rank": 3, "alpha": 6.0, "targets": ["q_proj", "o_proj", "down_proj"]}
MakeLearner = Callable[..., Learner]


@pytest.fixture
def make_learner(make_model: Callable[[], CausalLM]) -> MakeLearner:
    def make(lora: dict[str, Any] = LORA, **recipe: object) -> Learner:
        settings = {"learning_rate": 1e-2, "optimizer_steps": 2, "warmup_steps": 0, "grad_norm_clip": 1.0, "lora": lora}
        config = RecipeConfig.model_validate(settings | recipe)
        return Learner(Policy(make_model()).adapted(config.lora), config)

    return make


@pytest.fixture
def base(make_model: Callable[[], CausalLM], tmp_path: Path) -> Path:
    model = make_model()
    save_checkpoint(tmp_path / "base", model.config, model.weights())
    return tmp_path / "base"


def frozen_of(learner: Learner) -> torch.Tensor:
    named = learner.model.named_parameters()
    return torch.cat([parameter.detach().flatten() for name, parameter in named if not is_adapter(name)])


def test_adapters_start_as_nothing_and_from_their_names_alone(
    make_learner: MakeLearner, make_model: Callable[[], CausalLM], batch: TrainingBatch
) -> None:
    learner = make_learner()
    plain = learner.logprobs(batch, Policy(make_model()))
    assert all(torch.equal(a, b) for a, b in zip(plain, learner.logprobs(batch), strict=True))
    lora = LoraConfig(rank=3)
    name = "model.layers.0.self_attn.q_proj.lora_a"
    values = first_values(name, (3, 16), lora)
    assert torch.equal(values, first_values(name, (3, 16), lora)) and 0.2 < float(values.abs().max()) <= 1 / 4
    assert not torch.equal(values, first_values(name.replace("0", "1"), (3, 16), lora))
    assert not torch.equal(values, first_values(name, (3, 16), LoraConfig(rank=3, seed=1)))
    assert not first_values("x.lora_b", (16, 3), lora).any()


def test_only_adapters_have_gradients_and_move(make_learner: MakeLearner, batch: TrainingBatch) -> None:
    learner = make_learner()
    before, state = frozen_of(learner).clone(), {name: tensor.clone() for name, tensor in learner.state().items()}
    learner.learn(batch, 0)
    assert torch.equal(frozen_of(learner), before)
    with_gradient = {name for name, parameter in learner.model.named_parameters() if parameter.grad is not None}
    assert with_gradient == {name for name, _ in learner.trained()} != set()
    assert all(is_adapter(name) for name in with_gradient)
    moved = {name for name, tensor in learner.state().items() if name in state and not torch.equal(tensor, state[name])}
    assert moved == set(state)
    shapes = learner.model.config.weight_shapes()
    assert sum(p.numel() for _, p in learner.trained()) == num_adapter_parameters(shapes, LoraConfig(**LORA))


@pytest.mark.parametrize("targets", [["q_proj"], ["gate_proj", "up_proj"], list(TARGETS)])
def test_the_merged_model_computes_what_the_adapted_one_does(
    make_learner: MakeLearner, make_model: Callable[[], CausalLM], batch: TrainingBatch, targets: list[str]
) -> None:
    learner, merged = make_learner(LORA | {"targets": targets}), make_model()
    for version in range(3):
        learner.learn(batch, version)
    merged.set_weights(dict(learner.policy.published()))
    adapted, whole, plain = learner.logprobs(batch), learner.logprobs(batch, Policy(merged)), Policy(make_model())
    torch.testing.assert_close(torch.cat(whole), torch.cat(adapted), rtol=0, atol=1e-5)
    assert float((torch.cat(learner.logprobs(batch, plain)) - torch.cat(adapted)).abs().max()) > 1e-3


def test_biases_stay_and_are_published(batch: TrainingBatch, make_model: Callable[[], CausalLM]) -> None:
    settings = make_model().config.model_dump() | {"model_type": "qwen2"}
    config = ModelConfig.model_validate(settings)
    generator = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in config.weight_shapes().items()}
    recipe = RecipeConfig(learning_rate=1e-2, warmup_steps=0, lora=LoraConfig(rank=2))
    learner = Learner(Policy(CausalLM.of(config, weights)).adapted(recipe.lora), recipe)
    learner.learn(batch, 0)
    published = dict(learner.policy.published())
    bias = "model.layers.1.self_attn.k_proj.bias"
    assert torch.equal(published[bias], weights[bias])
    merged = CausalLM.of(config, published)
    torch.testing.assert_close(
        torch.cat(learner.logprobs(batch, Policy(merged))), torch.cat(learner.logprobs(batch)), rtol=0, atol=1e-5
    )


def test_it_learns_a_toy(make_learner: MakeLearner, batch: TrainingBatch) -> None:
    learner = make_learner()
    before = learner.logprobs(batch)
    for version in range(10):
        learner.learn(batch, version)
    after = learner.logprobs(batch)
    gains = [float((a - b).mean()) for a, b in zip(after, before, strict=True)]
    rewarded = [gain for gain, sample in zip(gains, batch.samples, strict=True) if sample.advantage > 0]
    others = [gain for gain, sample in zip(gains, batch.samples, strict=True) if sample.advantage < 0]
    assert sum(rewarded) / len(rewarded) > 0.1 > 0 > sum(others) / len(others)


def test_a_checkpoint_keeps_adapters_and_resumes_to_the_bit(
    make_learner: MakeLearner, batch: TrainingBatch, batch_file: BatchFile, base: Path, tmp_path: Path
) -> None:
    store, straight = CheckpointStore(tmp_path / "checkpoints"), make_learner()
    straight.learn(batch, 0)
    saved = store.save(straight, 1, batch_file, base)
    assert all(is_adapter(name) for name in straight.state())
    expected = straight.learn(batch, 1)
    recipe = straight.recipe
    resumed = Learner(Policy.load(base, ALONE, ScaleConfig(), recipe.lora), recipe)
    CheckpointStore(store.root).restore(saved, resumed)
    assert resumed.learn(batch, 1) == expected
    assert torch.equal(weights_of(resumed), weights_of(straight))
    assert saved.record.base is not None and saved.record.recipe.lora == LoraConfig(**LORA)


def test_what_is_published_is_the_merged_model(make_learner: MakeLearner, batch: TrainingBatch, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    learner = make_learner()
    learner.learn(batch, 0)
    folder = CheckpointStore(tmp_path / "checkpoints").save(learner, 1, None, tmp_path).model_folder
    for name, tensor in learner.policy.published():
        assert torch.equal(load_weights(folder)[name], tensor.bfloat16())
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = batch.samples[0].tokens
    ours = CausalLM.load(folder)
    with torch.no_grad():
        assert torch.allclose(theirs(tokens[None]).logits[0], ours.logits(ours(tokens, [len(tokens)])), atol=1e-5)


def test_a_checkpoint_of_other_adapters_or_of_another_model_is_refused(
    make_learner: MakeLearner, base: Path, tmp_path: Path
) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    saved = store.save(make_learner(), 0, None, base)
    with pytest.raises(ConfigError, match="other adapters"):
        store.restore(saved, make_learner(LORA | {"rank": 2}))
    learner = make_learner()
    with torch.no_grad():
        learner.model.model.norm.weight += 1
    with pytest.raises(ConfigError, match="another model's"):
        CheckpointStore(store.root).restore(saved, learner)


def test_a_step_is_replayed_on_the_base_model(
    make_learner: MakeLearner, batch: TrainingBatch, batch_file: BatchFile, base: Path, tmp_path: Path
) -> None:
    learner, store = make_learner(), CheckpointStore(tmp_path / "checkpoints")
    first = store.save(learner, 0, None, base)
    learner.learn(batch, 0)
    store.save(learner, 1, batch_file, base, first)
    found = replay_from(store.root, 1, None, base, 0.0)
    assert found.holds and found.found == found.recorded
    assert found.num_tensors == 3 * len(learner.trained()) + len(learner.model.config.weight_shapes())
    with pytest.raises(UsageError, match="trains adapters"):
        replay_from(store.root, 1, None, None, 0.0)
    other = CausalLM.load(base)
    with torch.no_grad():
        other.model.norm.weight += 1
    save_checkpoint(tmp_path / "other", other.config, other.weights())
    with pytest.raises(VerificationFailed, match="the base model"):
        replay_from(store.root, 1, None, tmp_path / "other", 0.0)


def test_other_published_weights_than_merged_ones_are_named(
    make_learner: MakeLearner, batch: TrainingBatch, batch_file: BatchFile, base: Path, tmp_path: Path
) -> None:
    learner, store = make_learner(), CheckpointStore(tmp_path / "checkpoints")
    first = store.save(learner, 0, None, base)
    learner.learn(batch, 0)
    made = store.save(learner, 1, batch_file, base, first)
    unmerged = first.model_folder / "model.safetensors"
    (made.model_folder / "model.safetensors").write_bytes(unmerged.read_bytes())
    found = replay_from(store.root, 1, None, base, 0.0)
    assert not found.holds and found.first_difference is not None
    assert found.first_difference.tensor.startswith("published.model.layers.0.")


def test_a_learner_without_the_recipes_adapters_is_refused(make_model: Callable[[], CausalLM]) -> None:
    with pytest.raises(ConfigError, match="hasn't the recipe's adapters"):
        Learner(make_model(), RecipeConfig(lora=LoraConfig()))


@pytest.mark.parametrize("wrong", [{"targets": []}, {"targets": ["lm_head"]}, {"targets": ["q_proj"] * 2}, {"rank": 0}])
def test_what_makes_no_adapters_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LoraConfig.model_validate(wrong)


def test_records_of_before_there_were_adapters_are_read(
    make_learner: MakeLearner, batch: TrainingBatch, tmp_path: Path, make_model: Callable[[], CausalLM]
) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    file = store.save(Learner(make_model(), RecipeConfig()), 0, None, tmp_path).folder / "step.json"
    record = json.loads(file.read_text())
    del record["base"], record["recipe"]["lora"]
    file.write_text(json.dumps(record | {"schema_version": 2}))
    assert store.of(0).record.base is None


def test_the_estimate_knows_of_adapters(base: Path) -> None:
    model, lora = ModelConfig.load(base), LoraConfig(**LORA)
    with_lora, without = (estimate_memory(model, RecipeConfig(lora=one), ScaleConfig()) for one in (lora, None))
    sizes = {part.name: part.num_bytes for part in with_lora.parts}
    assert with_lora.num_trained == num_adapter_parameters(model.weight_shapes(), lora) < without.num_trained
    assert sizes["adapters"] == sizes["gradients"] == 4 * with_lora.num_trained
    assert "head's gradient" not in sizes


WITH_REFERENCE = {"objective": {"kl_coefficient": 0.5}}


def test_a_kl_term_holds_to_what_adapters_are_added_to_without_another_model(
    make_learner: MakeLearner, make_model: Callable[[], CausalLM], batch: TrainingBatch
) -> None:
    own = make_learner(**WITH_REFERENCE)
    given = Learner(Policy(make_model()).adapted(own.recipe.lora), own.recipe, make_model().requires_grad_(False))
    assert own.reference is None and given.reference is not None
    for version in range(3):
        figures = own.learn(batch, version)
        assert figures == given.learn(batch, version)
    assert figures.kl_to_reference is not None and figures.kl_to_reference > 1e-4
    assert torch.equal(weights_of(own), weights_of(given))
    adapted, plain = own.logprobs(batch), Learner(make_model(), RecipeConfig()).logprobs(batch)
    with switched_off(own.model):
        assert all(torch.equal(a, b) for a, b in zip(own.logprobs(batch), plain, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(own.logprobs(batch), adapted, strict=True))  # and on again
    assert not any(torch.equal(a, b) for a, b in zip(adapted, plain, strict=True))


def test_adapters_are_on_again_after_an_error(make_learner: MakeLearner) -> None:
    learner = make_learner()
    adapted = [module for module in learner.model.modules() if isinstance(module, Adapted)]
    with pytest.raises(RuntimeError, match="on the way"), switched_off(learner.model):
        assert adapted and not any(module.is_on for module in adapted)
        raise RuntimeError("on the way")
    assert all(module.is_on for module in adapted)


def test_without_adapters_a_kl_term_needs_a_reference(make_model: Callable[[], CausalLM]) -> None:
    with pytest.raises(ConfigError, match="no reference"):
        Learner(make_model(), RecipeConfig.model_validate(WITH_REFERENCE))


def test_a_step_with_that_reference_is_recorded_and_replayed(
    make_learner: MakeLearner, batch: TrainingBatch, batch_file: BatchFile, base: Path, tmp_path: Path
) -> None:
    learner, store = make_learner(**WITH_REFERENCE), CheckpointStore(tmp_path / "checkpoints")
    first = store.save(learner, 0, None, base)
    for version in range(2):
        learner.learn(batch, version)
        first = store.save(learner, version + 1, batch_file, base, first)
    assert first.record.reference == first.record.base is not None
    assert replay_from(store.root, 2, None, base, 0.0).holds


def test_adapted_projections_are_the_named_ones(make_learner: MakeLearner) -> None:
    layer = make_learner().model.layers()[0]
    assert isinstance(layer.self_attn.q_proj, Adapted) and isinstance(layer.mlp.down_proj, Adapted)
    assert not isinstance(layer.self_attn.k_proj, Adapted)
