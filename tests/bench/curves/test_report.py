"""Comparisons, tables and figures of runs that are made up, so that what must come out is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.curves.arms import EXPERIMENTS
from tests.bench.curves.comparison import COMPARISONS, standings
from tests.bench.curves.document import DATA, Curve, Document, curve_of, read_document
from tests.bench.curves.report import CLIPS, PAGE, draw_figures, renewed

NUM_STEPS = 12


def curve(gain: float, rollouts_a_step: int = 64) -> Curve:
    """A pass rate that rises evenly by `gain`, looked at after every fourth step."""
    looks = tuple(range(0, NUM_STEPS + 1, 4))
    return Curve(
        looks=looks,
        pass_rates=tuple(0.4 + gain * look / NUM_STEPS for look in looks),
        generated=tuple(rollouts_a_step * step for step in range(1, NUM_STEPS + 1)),
        entropy=(0.1,) * NUM_STEPS,
        kl_to_worker=(0.0,) * NUM_STEPS,
        grad_norm=(0.5,) * (NUM_STEPS - 1) + (50.0,),
        ratio_p99=(1.0,) * NUM_STEPS,
        delta_share=(0.0,) * NUM_STEPS,
    )


@pytest.fixture
def document() -> Document:
    """Three seeds an arm; `lag-4` learns half of what the others do, filtered problems take half the rollouts."""
    arms = [arm.name for arms in EXPERIMENTS.values() for arm in arms]
    gains = {arm: 0.1 if arm == "lag-4" else -0.1 if arm == CLIPS[0] else 0.2 for arm in arms}
    return Document(
        command="made up",
        curves={
            arm: {seed: curve(gains[arm] + seed / 100, 32 if arm == "offline-filter" else 64) for seed in range(3)}
            for arm in arms
        },
    )


def test_an_arm_that_learns_less_is_told_from_one_that_does_not(document: Document) -> None:
    base, same, _, less = standings(document, COMPARISONS["lag"])
    assert base.course_difference is None and base.num_seeds == 3 and base.reach == NUM_STEPS
    assert base.course.value == pytest.approx(0.4 + 0.21 / 2)
    assert same.end_difference is not None and same.end_difference.value == 0 and same.end_difference.p == 1
    assert less.course_difference is not None and less.course_difference.value == pytest.approx(-0.05)
    assert less.course_difference.p < 0.001


def test_equal_rollouts_are_as_many_as_the_shortest_has(document: Document) -> None:
    by_rollouts = {one.arm: one for one in standings(document, COMPARISONS["filter"])}
    assert {one.reach for one in by_rollouts.values()} == {32 * NUM_STEPS}
    assert by_rollouts["lag-2"].course.value == pytest.approx(0.4 + 0.21 / 4)
    assert by_rollouts["offline-filter"].course.value == pytest.approx(0.4 + 0.21 / 2)
    by_steps = standings(document, COMPARISONS["filter-steps"])
    assert [one.course.value for one in by_steps] == [pytest.approx(0.4 + 0.21 / 2)] * 2


def test_only_seeds_that_all_arms_have_are_compared(document: Document) -> None:
    del document.curves["lag-1"][2]
    assert {one.num_seeds for one in standings(document, COMPARISONS["lag"])} == {2}


def test_a_page_gets_its_tables_and_a_table_that_is_none_is_an_error(document: Document) -> None:
    page = renewed("<!-- curves: lag -->\nold\n<!-- end -->\nkept\n<!-- curves: clip -->\n<!-- end -->\n", document)
    assert "old" not in page and "\nkept\n" in page
    assert "| lag-4 | 768 |" in page
    assert f"| {CLIPS[0]} | 3 | 0.400 | 0.310 (0.300 to 0.320) | 0 | 50 (50 to 50) | 0.00 |" in page
    assert f"| {CLIPS[1]} | 3 | 0.610 | 0.610 (0.600 to 0.620) | 3 |" in page
    with pytest.raises(KeyError):
        renewed("<!-- curves: no such -->\n<!-- end -->\n", document)


def test_figures_repeat_themselves_and_show_other_curves_otherwise(document: Document, tmp_path: Path) -> None:
    first = draw_figures(document, tmp_path / "a")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in first)
    document.curves["lag-4"][0] = curve(0.3)
    other = draw_figures(document, tmp_path / "b")
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(first, other, strict=True)] == [False, True, True]


def test_a_document_is_read_as_it_was_written(document: Document, tmp_path: Path) -> None:
    document.write(tmp_path / "curves.json")
    assert read_document(tmp_path / "curves.json") == document


def test_a_curve_is_made_of_a_runs_lines() -> None:
    step = {
        "num_rollouts": 64,
        "num_generated_rollouts": 88,
        "entropy": 0.123456789,
        "kl_to_worker": 0.0,
        "grad_norm": 1.0,
    }
    step |= {"ratio_p99": 1.1, "ratio_delta_share": 0.0}
    found = curve_of([{"step": 0, "held_back_average": 0.4}, {"step": 1, **step}])
    assert (found.looks, found.pass_rates, found.rollouts(), found.entropy) == ((0,), (0.4,), (0,), (0.12346,))
    assert found.generated == (88,)


def test_the_committed_page_has_the_committed_figures() -> None:
    assert PAGE.read_text(encoding="utf-8") == renewed(PAGE.read_text(encoding="utf-8"), read_document(DATA))
