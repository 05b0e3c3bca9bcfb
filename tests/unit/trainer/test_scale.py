"""What saves memory changes no result: recomputed activations, micro-batches, offload against a step without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from protocol.forward import CausalLM
from tests.unit.trainer.conftest import weights_of
from trainer.figures import StepFigures
from trainer.learner import Learner, RecipeConfig
from trainer.policy import Policy, local_part, whole
from trainer.ranks import ALONE, Ranks, ScaleConfig, start_ranks
from trainer.samples import TrainingBatch

RECIPE: dict[str, Any] = {"learning_rate": 1e-2, "warmup_steps": 0, "optimizer_steps": 2, "grad_norm_clip": 1.0}
LORA: dict[str, Any] = {"lora": {"rank": 2}}


def learn(
    model: CausalLM, batch: TrainingBatch, scale: ScaleConfig, ranks: Ranks = ALONE, **recipe: Any
) -> tuple[Learner, list[StepFigures]]:
    """A learner after two steps."""
    config = RecipeConfig.model_validate(RECIPE | recipe)
    learner = Learner(Policy(model).adapted(config.lora).dealt(ranks, scale), config, None, ranks)
    return learner, [learner.learn(batch, version) for version in range(2)]


@contextmanager
def ranks_of(scale: ScaleConfig) -> Iterator[Ranks]:
    """A group of this process alone."""
    ranks = start_ranks(scale, environment={})
    try:
        yield ranks
    finally:
        ranks.close()


@contextmanager
def kept() -> Iterator[list[int]]:
    """Bytes of each tensor that a forward pass keeps for its backward pass."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield sizes


@pytest.mark.parametrize("recipe", [{}, LORA, {"objective": {"entropy_coefficient": 0.1}}])
def test_recomputed_activations_change_no_bit_and_keep_less(
    make_model: Callable[[], CausalLM], batch: TrainingBatch, recipe: dict[str, Any]
) -> None:
    found = []
    for scale in (ScaleConfig(), ScaleConfig(recompute_activations=True)):
        with kept() as sizes:
            learner, figures = learn(make_model(), batch, scale, **recipe)
        found.append((weights_of(learner), figures, sum(sizes)))
    (weights, figures, most), (others, same, less) = found
    assert torch.equal(weights, others) and figures == same
    assert less < most
    assert not torch.equal(weights, torch.cat([w.flatten() for w in make_model().weights().values()]))


def test_gradients_of_many_micro_batches_are_those_of_one(
    make_model: Callable[[], CausalLM], batch: TrainingBatch
) -> None:
    one, _ = learn(make_model(), batch, ScaleConfig(), max_tokens=4096)
    many, _ = learn(make_model(), batch, ScaleConfig(), max_tokens=1)
    fewer, _ = learn(make_model(), batch, ScaleConfig(), optimizer_steps=1)
    assert torch.allclose(weights_of(many), weights_of(one), atol=1e-5)
    assert not torch.allclose(weights_of(fewer), weights_of(one), atol=1e-5)


@pytest.mark.parametrize("recipe", [{}, LORA])
@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_offloaded_state_is_stepped_to_the_same_values(
    make_model: Callable[[], CausalLM], batch: TrainingBatch, compute_dtype: str, recipe: dict[str, Any]
) -> None:
    """On a processor, which is the host itself: the path that hands gradients over and steps there is the GPU's."""
    plain = ScaleConfig.model_validate({"compute_dtype": compute_dtype})
    with ranks_of(offloading(plain)) as ranks:
        expected, figures = learn(make_model(), batch, plain, ranks, **recipe)
        found, same = learn(make_model(), batch, offloading(plain), ranks, **recipe)
        assert figures == same
        for name, tensor in expected.state().items():
            assert torch.equal(whole(tensor), whole(found.state()[name])), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("recipe", [{}, LORA])
def test_offload_from_a_gpu_keeps_state_on_the_host_and_changes_nothing(
    make_model: Callable[[], CausalLM], batch: TrainingBatch, recipe: dict[str, Any]
) -> None:
    found = []
    for offload in (False, True):
        scale = ScaleConfig(device="cuda", compute_dtype="bfloat16", offload=offload)
        with ranks_of(scale) as ranks:
            learner, _ = learn(make_model(), batch, scale, ranks, **recipe)
            state = learner.state()
            assert {local_part(tensor).device.type for tensor in state.values()} == {"cpu" if offload else "cuda"}
            found.append({name: whole(tensor).cpu() for name, tensor in state.items()})
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=1e-5, atol=1e-6)


def test_offload_without_a_gpu_is_refused_as_a_setting() -> None:
    with pytest.raises(ValidationError, match="host's memory already"):
        ScaleConfig(offload=True)


def offloading(scale: ScaleConfig) -> ScaleConfig:
    """What the settings refuse on a processor, since it would save nothing there."""
    return scale.model_copy(update={"offload": True})
