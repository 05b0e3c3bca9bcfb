"""Intervals and resampling: what the published tables rest on."""

from __future__ import annotations

import pytest

from tests.attacks.shares import UNKNOWN, resampled_files, share_of_sets, wilson


def test_wilsons_interval_holds_the_share_and_narrows_with_more_trials() -> None:
    few, many = wilson(6, 8), wilson(600, 800)
    assert few.low < few.share < few.high
    assert few.low < many.low < many.share < many.high < few.high
    assert (many.low, many.high) == pytest.approx((0.7189, 0.7787), abs=1e-4)


def test_a_share_at_the_edge_stays_there_and_nothing_tried_says_nothing() -> None:
    assert wilson(64, 64).high == 1.0 and wilson(64, 64).low == pytest.approx(0.9434, abs=1e-4)
    assert wilson(0, 64).low == 0.0 and wilson(0, 64).high > 0
    assert wilson(0, 0) == UNKNOWN


def test_resampled_files_have_a_lie_in_them_where_there_is_one() -> None:
    altered = [True] + [False] * 63
    sets = list(resampled_files(altered, 8, num_sets=50, num_files=5))
    assert sets and all(0 in file and len(file) == 8 for files in sets for file in files)
    honest = list(resampled_files([False] * 4, 8, num_sets=3, num_files=5))
    assert [len(files) for files in honest] == [5, 5, 5]


def test_the_same_files_are_drawn_again() -> None:
    one, other = (list(resampled_files([True, False] * 8, 4, 5, 3)) for _ in range(2))
    assert one == other


def test_shares_of_sets_have_the_percentiles_of_the_sets() -> None:
    share = share_of_sets([[True, True], [True, False], [False, False]])
    assert share.share == pytest.approx(0.5) and share.low < 0.1 and share.high > 0.9
    assert share_of_sets([]) == UNKNOWN
