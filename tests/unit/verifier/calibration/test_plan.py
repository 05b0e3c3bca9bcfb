"""Who generates and who judges how much."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from protocol.errors import UsageError
from verifier.calibration.plan import make_plan
from verifier.calibration.setups import Judge, computing, dtype_of, has_kernel


def test_shares_follow_batch_sizes_and_everybody_has_some() -> None:
    plan = make_plan("float32", 400, batch_sizes=(1, 8, 64, 256), generators=["torch"], judges=["torch"])
    shares: Counter[int] = Counter()
    for job in plan.jobs():
        shares[job.generator.max_batch] += job.num_submissions
        assert job.num_submissions == max(1, job.generator.max_batch // 64)
    assert shares[256] > shares[64] > shares[8] > shares[1] >= 1
    assert 400 <= sum(shares.values()) < 404
    assert [job.number for job in plan.jobs()] == list(range(len(list(plan.jobs()))))


def test_every_generator_comes_up_even_in_a_short_run() -> None:
    plan = make_plan("float32", 1, batch_sizes=(1, 8, 256), generators=["torch", "torch-math"], judges=["torch"])
    assert {job.generator for job in plan.jobs()} == set(plan.generators)


def test_the_first_judge_sees_everything_and_the_others_take_turns() -> None:
    plan = make_plan("bfloat16", 40, generators=["torch"], judges=["torch", "torch-math", "torch-float32"])
    seen = Counter(judge.name for job in plan.jobs() for judge in job.judges)
    first, *others = plan.judges
    assert seen[first.name] == 40
    assert sum(seen[judge.name] for judge in others) == 40
    assert all(seen[judge.name] > 10 for judge in others)


def test_a_pool_of_bfloat16_has_float32_work_too_and_not_the_other_way_round() -> None:
    assert "float32" in {generator.dtype for generator in make_plan("bfloat16", 1).generators}
    assert {generator.dtype for generator in make_plan("float32", 1).generators} == {"float32"}


def test_wide_products_are_float32s_rounded_and_only_inside() -> None:
    layer, rows = torch.nn.Linear(64, 64, dtype=torch.bfloat16), torch.randn(5, 64).bfloat16()
    exact = torch.nn.functional.linear(rows.float(), layer.weight.float(), layer.bias.float())
    own = layer(rows)
    with computing(Judge("torch", "bfloat16", is_wide=True)):
        assert torch.equal(layer(rows), exact.bfloat16())
        assert layer(rows).dtype == torch.bfloat16
        assert torch.equal(
            torch.nn.functional.linear(rows.float(), layer.weight.float()), rows.float() @ layer.weight.float().T
        )
    assert torch.equal(layer(rows), own)


def test_wide_products_are_a_way_of_bfloat16_pools_alone() -> None:
    assert any(judge.is_wide for judge in make_plan("bfloat16", 1).judges)
    assert not any(judge.is_wide for judge in make_plan("float32", 1).judges)
    with pytest.raises(UsageError, match="can't compute that way"):
        make_plan("float32", 1, judges=["torch-wide"])


@pytest.mark.parametrize(
    "wrong", [{"generators": ["cuda"]}, {"judges": ["abacus"]}, {"batch_sizes": (0,)}, {"batch_sizes": ()}]
)
def test_what_cant_be_computed_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        make_plan("float32", 4, **wrong)  # type: ignore[arg-type]


def test_a_precision_by_name() -> None:
    assert dtype_of("bfloat16") == "bfloat16"
    with pytest.raises(UsageError, match="no such precision"):
        dtype_of("float8")


def test_kernels_are_tried_and_settings_come_back() -> None:
    assert has_kernel("math", "float32")
    before = torch.get_num_threads()
    plan = make_plan("float32", 1)
    for judge in plan.judges:
        with computing(judge):
            assert torch.get_num_threads() == judge.num_threads
    assert torch.get_num_threads() == before
