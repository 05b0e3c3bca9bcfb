"""The estimate of a step's memory: near what a process is seen to take, and moved by what should move it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.heap import return_large_blocks
from protocol.weights import ModelConfig
from testnet.plan import BASE_MODEL
from tests.unit.trainer import memory_program
from trainer.held_back import EvaluationConfig
from trainer.learner import RecipeConfig
from trainer.memory import RUNTIME_BYTES, MemoryEstimate, Place, estimate_memory, size_text
from trainer.ranks import ScaleConfig

TOLERANCE = 0.3
LENGTH = 240


def measured(folder: Path, recipe: dict[str, Any], scale: dict[str, Any], length: int = LENGTH) -> int:
    command = [sys.executable, memory_program.__file__, str(folder), json.dumps(recipe), json.dumps(scale), str(length)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def estimated(folder: Path, recipe: dict[str, Any], scale: dict[str, Any]) -> int:
    found = estimate_memory(
        ModelConfig.load(folder), RecipeConfig.model_validate(recipe), ScaleConfig.model_validate(scale)
    )
    return found.total("host") - RUNTIME_BYTES


@pytest.mark.slow
@pytest.mark.skipif(not return_large_blocks(), reason="resident memory is what is live where the C library is glibc")
@pytest.mark.parametrize(
    ("recipe", "scale"),
    [
        ({"max_tokens": 4096}, {}),
        ({"max_tokens": 4096}, {"map_large_blocks": True}),
        ({"max_tokens": 1024}, {}),
        ({"max_tokens": 4096, "objective": {"entropy_coefficient": 0.01}}, {}),
        ({"max_tokens": 4096}, {"recompute_activations": True}),
        ({"max_tokens": 4096, "lora": {"rank": 8}}, {}),
    ],
)
def test_it_is_near_what_a_process_takes(recipe: dict[str, Any], scale: dict[str, Any]) -> None:
    found = measured(BASE_MODEL, recipe | {"optimizer_steps": 1}, scale)
    assert estimated(BASE_MODEL, recipe, scale) == pytest.approx(found, rel=TOLERANCE)


@pytest.mark.bench
@pytest.mark.timeout(1200)
def test_it_is_near_what_smollm2_takes(smollm2_folder: Path) -> None:
    recipe = {"max_tokens": 512, "optimizer_steps": 1}
    found, expected = measured(smollm2_folder, recipe, {}, length=120), estimated(smollm2_folder, recipe, {})
    print(f"measured {size_text(found)}, estimated {size_text(expected)}")
    assert expected == pytest.approx(found, rel=TOLERANCE)


def of(num_ranks: int = 1, *, recipe: dict[str, Any] | None = None, **scale: Any) -> MemoryEstimate:
    return estimate_memory(
        ModelConfig.load(BASE_MODEL),
        RecipeConfig.model_validate(recipe or {}),
        ScaleConfig.model_validate(scale),
        num_ranks,
    )


def part(estimate: MemoryEstimate, name: str, place: Place = "host") -> int:
    return sum(part.num_bytes for part in estimate.parts if (part.name, part.place) == (name, place))


def test_state_is_four_bytes_a_parameter_for_each_of_four_and_dealt_over_ranks() -> None:
    one, eight = of(), of(8)
    assert one.num_parameters == one.num_trained == 856_960
    assert part(one, "master weights") == part(one, "gradients") == part(one, "optimizer") // 2 == 4 * 856_960
    assert part(eight, "optimizer") * 8 == part(one, "optimizer")
    assert part(eight, "activations") == part(one, "activations")
    assert part(one, "weights") == 0 < part(eight, "weights")


def test_each_setting_moves_what_it_is_for() -> None:
    assert part(of(), "reference") == 0
    assert part(of(recipe={"objective": {"kl_coefficient": 0.1}}), "reference") == part(of(), "master weights")
    with_adapters = {"objective": {"kl_coefficient": 0.1}, "lora": {"rank": 2}}
    assert part(of(recipe=with_adapters), "reference") == 0  # what they are added to is there already
    assert part(of(recipe={"max_tokens": 16_384}), "activations") * 2 == part(of(), "activations")
    assert part(of(recompute_activations=True), "activations") < part(of(), "activations") / 2
    assert part(of(compute_dtype="bfloat16"), "activations") * 2 == part(of(), "activations")


def test_gaps_are_of_a_heap_that_keeps_them() -> None:
    assert part(of(), "gaps") == part(of(), "activations") > 0
    assert part(of(map_large_blocks=True), "gaps") == 0
    assert part(of(device="cuda"), "gaps") == part(of(device="cuda"), "gaps", "gpu") == 0


def test_what_is_offloaded_is_the_hosts() -> None:
    gpu, offloaded = of(device="cuda"), of(device="cuda", offload=True)
    assert part(gpu, "optimizer", "gpu") == part(offloaded, "optimizer", "host") > 0
    assert part(gpu, "optimizer", "host") == part(offloaded, "optimizer", "gpu") == 0
    assert part(offloaded, "activations", "gpu") == part(gpu, "activations", "gpu")
    assert of().total("gpu") == 0


def test_logits_are_bounded_by_their_slices() -> None:
    vocabulary = ModelConfig.load(BASE_MODEL).model_copy(update={"vocab_size": 150_000})
    found = estimate_memory(vocabulary, RecipeConfig(), ScaleConfig())
    assert part(found, "logits") == 2 * 64 << 20
    assert any("18.3 GiB" in part.why for part in found.parts)


def test_sizes_are_for_people() -> None:
    assert (size_text(3 << 20), size_text(5 << 29)) == ("3 MiB", "2.5 GiB")


def test_an_evaluations_engine_counts_where_one_is_asked_for() -> None:
    def parts(**evaluation: Any) -> dict[str, tuple[Place, int]]:
        chosen = EvaluationConfig.model_validate(evaluation)
        found = estimate_memory(ModelConfig.load(BASE_MODEL), RecipeConfig(), ScaleConfig(), evaluation=chosen)
        return {part.name: (part.place, part.num_bytes) for part in found.parts}

    plain, evaluated = parts(), parts(evaluate_every=4)
    added = {"weights for evaluation", "keys and values for evaluation"}
    assert set(evaluated) - set(plain) == added and plain.items() <= evaluated.items()
    assert evaluated["weights for evaluation"] == plain["master weights"]
    halved = parts(evaluate_every=4, dtype="bfloat16")
    assert all(2 * halved[name][1] == evaluated[name][1] for name in added)
    assert {parts(evaluate_every=4, engine="vllm")[name][0] for name in added} == {"gpu"}
