"""The committed threshold files: each can be taken into a pool's rules, and has the data behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ConfigError, UsageError
from protocol.rules import Thresholds
from verifier import thresholds
from verifier.calibration.document import ThresholdFile

FOLDER = Path(thresholds.__file__).parent


@pytest.mark.parametrize("name", thresholds.names())
def test_a_committed_file_gives_limits_and_says_why(name: str) -> None:
    document = ThresholdFile.model_validate_json((FOLDER / f"{name}.json").read_text())
    limits = thresholds.thresholds_of(name)
    assert limits == document.limits
    assert name.endswith(f".{document.dtype}")
    assert document.honest.num_rollouts > 0
    assert not any(pairing.num_degenerate for pairing in document.honest.pairings)
    for statistic in ("toploc_exp_mismatch_share", "toploc_mantissa_mean", "sampling_margin_mean"):
        limit = getattr(limits, statistic)
        assert 0 < limit.reject < limit.slash


def test_no_stake_rests_on_a_single_token_where_rare_ones_are_far_off() -> None:
    """bfloat16 has a rare tail, which so many rollouts show; float32 has none."""
    document = ThresholdFile.model_validate_json((FOLDER / "testnet.bfloat16.json").read_text())
    assert document.honest.num_rollouts > 30_000
    assert document.derivations["sampling_margin_max"]["tail"]["method"] == "far"
    assert document.limits.sampling_margin_max.slash is None
    assert thresholds.thresholds_of("testnet.float32").sampling_margin_max.slash is not None


def test_a_rare_far_margin_does_not_hide_a_handful_of_wrong_tokens() -> None:
    """Three far margins in a file of bfloat16 pass the mean and four don't; honest files come to less than half."""
    document = ThresholdFile.model_validate_json((FOLDER / "testnet.bfloat16.json").read_text())
    clip, num_tokens = document.limits.sampling_margin_clip, 1_750
    allowed = document.limits.sampling_margin_mean.at(num_tokens).reject * num_tokens
    assert clip < document.limits.sampling_margin_max.reject
    assert 3 * clip < allowed < 4 * clip
    honest = max(p.submissions["sampling_margin_mean"].highest for p in document.honest.pairings) * num_tokens
    assert 0 < honest < allowed / 2


def test_new_pools_start_from_the_testnets() -> None:
    assert thresholds.default_thresholds() == thresholds.thresholds_of(thresholds.DEFAULT)


def test_limits_come_through_rules_unchanged() -> None:
    limits = thresholds.default_thresholds()
    assert Thresholds.model_validate_json(limits.model_dump_json()) == limits


def test_what_isnt_there_or_isnt_a_file_of_thresholds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such thresholds"):
        thresholds.thresholds_of("gpt-2.float32")
    for content in ("", "{}", "[]", '{"limits": {"toploc_mantissa_mean": 1}}'):
        (tmp_path / "file.json").write_text(content)
        with pytest.raises(ConfigError, match="not a threshold file"):
            thresholds.read_thresholds(tmp_path / "file.json")
    with pytest.raises(ConfigError, match="can't be read"):
        thresholds.read_thresholds(tmp_path / "none.json")
    assert thresholds.read_thresholds(FOLDER / "testnet.float32.json") == thresholds.default_thresholds()
