"""Environments by name, and that a pool's rules get the environment they were made for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol.environments.reasoning_gym import ReasoningGym
from protocol.environments.registry import environment_names, environment_of, load_environment
from protocol.errors import ConfigError, UsageError
from protocol.randomness import SeedStream
from protocol.rules import EnvironmentRules
from protocol.tokenizer import Tokenizer

CONFIG = {"dataset": "chain_sum"}


def test_the_built_in_environment_is_found(tokenizer: Tokenizer) -> None:
    assert "reasoning_gym" in environment_names()
    assert isinstance(load_environment("reasoning_gym", CONFIG, tokenizer), ReasoningGym)


def test_an_unknown_name_lists_those_there_are(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="reasoning_gym"):
        load_environment("no_such", {}, tokenizer)


def test_rules_get_their_environment_and_no_other(tokenizer: Tokenizer) -> None:
    environment = load_environment("reasoning_gym", CONFIG, tokenizer)
    rules = EnvironmentRules(name="reasoning_gym", config=CONFIG, environment_hash=environment.environment_hash)
    assert environment_of(rules, tokenizer).environment_hash == environment.environment_hash
    with pytest.raises(ConfigError, match="isn't the pool's"):
        environment_of(rules.model_copy(update={"config": {**CONFIG, "seed": 1}}), tokenizer)


def test_only_chosen_problems_are_asked(tokenizer: Tokenizer) -> None:
    config = {"dataset": "chain_sum", "num_problems": 50}
    everything = load_environment("reasoning_gym", config, tokenizer)
    chosen = load_environment("reasoning_gym", {**config, "only": [3, 7, 49]}, tokenizer)
    assert (everything.num_asked, chosen.num_asked) == (50, 3)
    assert [chosen.asked(place) for place in range(3)] == [everything.problem(index) for index in (3, 7, 49)]
    assert everything.asked(7) == everything.problem(7)
    assert chosen.environment_hash != everything.environment_hash
    for place in (-1, 3):
        with pytest.raises(UsageError, match="no such problem"):
            chosen.asked(place)


@pytest.mark.parametrize(
    ("only", "match"), [([50], "hasn't got a problem"), ([4, 4], "wrong"), ([5, 4], "wrong"), ([-1], "wrong")]
)
def test_a_choice_that_the_environment_hasnt_got_is_refused(tokenizer: Tokenizer, only: list[int], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        load_environment("reasoning_gym", {"dataset": "chain_sum", "num_problems": 50, "only": only}, tokenizer)


TIERS = [{"weight": 3, "only": [2, 5, 9]}, {"weight": 1, "only": [0, 7]}]


def test_tiers_are_drawn_by_weight_and_their_problems_alike(tokenizer: Tokenizer) -> None:
    config = {"dataset": "chain_sum", "num_problems": 10}
    tiered = load_environment("reasoning_gym", config | {"tiers": TIERS}, tokenizer)
    drawn = [tiered.draw(SeedStream(number.to_bytes(32, "big"), "group/0")).index for number in range(4000)]
    assert set(drawn) == {0, 2, 5, 7, 9}
    expected = {2: 1000, 5: 1000, 9: 1000, 0: 500, 7: 500}
    assert all(abs(drawn.count(index) - count) < 5 * count**0.5 for index, count in expected.items())
    stream = SeedStream((17).to_bytes(32, "big"), "group/0")
    tier = TIERS[stream.below(4) // 3]["only"]
    assert isinstance(tier, list) and drawn[17] == tier[stream.below(len(tier))]
    assert (tiered.num_asked, tiered.asked(3).index) == (5, 0)


def test_tiers_are_in_the_environments_hash_and_none_change_nothing(tokenizer: Tokenizer) -> None:
    config = {"dataset": "chain_sum", "num_problems": 10}
    heavier = [TIERS[0] | {"weight": 4}, TIERS[1]]
    found = [
        load_environment("reasoning_gym", config | more, tokenizer).environment_hash
        for more in ({}, {"tiers": []}, {"tiers": TIERS}, {"tiers": heavier}, {"only": [0, 2, 5, 7, 9]})
    ]
    assert found[0] == found[1] and len(set(found)) == 4


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        ({"tiers": [{"weight": 1, "only": [50]}]}, "hasn't got a problem"),
        ({"tiers": [{"weight": 0, "only": [1]}]}, "wrong"),
        ({"tiers": [{"weight": 1, "only": []}]}, "wrong"),
        ({"tiers": [{"weight": 1, "only": [2, 1]}]}, "rising order"),
        ({"tiers": [{"weight": 1, "only": [1]}, {"weight": 1, "only": [1]}]}, "in two tiers"),
        ({"tiers": [{"weight": 1, "only": [1]}], "only": [1]}, "set one of them"),
    ],
)
def test_tiers_that_make_no_sense_are_refused(tokenizer: Tokenizer, choice: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        load_environment("reasoning_gym", {"dataset": "chain_sum", "num_problems": 50} | choice, tokenizer)
    assert refused.value.exit_code == 2


def test_the_package_is_imported_only_when_an_environment_is_loaded() -> None:
    program = "import protocol.environments.registry, protocol.environments.reasoning_gym, sys; "
    program += "sys.exit('reasoning_gym' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
