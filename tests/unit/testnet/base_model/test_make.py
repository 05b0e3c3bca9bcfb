"""How the base model is made: solutions with and without mistakes, the schedule, the loss, the stop."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from protocol.environments.base import Environment
from protocol.tokenizer import Tokenizer
from protocol.weights import load_weights
from testnet.base_model.make import Recipe, batches, completion_loss, make, model_config, new_model, worked_solution
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer
from testnet.task import testnet_environment as load_task

QUICK = Recipe(batch_size=4, max_updates=3, measure_from=2, measure_every=1, num_held_back=4, target_pass_rate=0.0)


@pytest.fixture(scope="module")
def environment() -> Environment:
    return load_task(Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID))


def test_sums_run_on_and_keep_their_sign() -> None:
    assert worked_solution("57 + 87 - 70") == "57+87=144;144-70=74;#74"
    assert worked_solution("5 - 8 + 3") == "5-8=-3;-3+3=0;#0"
    assert worked_solution("0 - 99") == "0-99=-99;#-99"


def test_a_mistake_is_carried_on_to_the_answer() -> None:
    errors = iter([10, 0])
    assert worked_solution("1 + 1 + 1", lambda: next(errors)) == "1+1=12;12+1=13;#13"


def signed_terms(expression: str) -> list[int]:
    return [int(term) for term in expression.replace(" - ", " + -").split(" + ")]


def test_solutions_are_right_until_mistakes_set_in(environment: Environment) -> None:
    def passed(recipe: Recipe) -> float:
        decode = environment.tokenizer.decode
        pairs = [pair for batch in itertools.islice(batches(environment, recipe, 0), 4) for pair in batch]
        expressions = [decode(prompt).rpartition(": ")[2].removesuffix(" =") for prompt, _ in pairs]
        answers = [decode(completion).rpartition("#")[2] for _, completion in pairs]
        return sum(int(a) == sum(signed_terms(e)) for e, a in zip(expressions, answers, strict=True)) / len(pairs)

    assert passed(Recipe(mistakes_from=100)) == 1.0
    assert 0.4 < passed(Recipe(mistakes_from=0, mistake_rate=0.2)) < 0.8


def test_the_learning_rate_warms_up_holds_and_falls() -> None:
    recipe = Recipe()
    assert recipe.learning_rate_at(0) == pytest.approx(recipe.learning_rate / recipe.warmup_updates)
    assert recipe.learning_rate_at(recipe.decay_from) == recipe.learning_rate
    for update in (recipe.mistakes_from, recipe.max_updates):
        assert recipe.learning_rate_at(update) == pytest.approx(recipe.final_learning_rate)


def test_the_loss_is_over_completions_only(environment: Environment) -> None:
    model = new_model(model_config(30), seed=0, std=0.06)
    prompt, completion = next(batches(environment, QUICK, 0))[0]
    with torch.no_grad():
        logits = model.logits(model(torch.tensor(prompt + completion), [len(prompt) + len(completion)]))
        rows = logits[len(prompt) - 1 : -1].log_softmax(-1)
        by_hand = -rows.gather(1, torch.tensor(completion)[:, None]).mean()
        torch.testing.assert_close(completion_loss(model, [(prompt, completion)]), by_hand)


def test_the_same_seed_makes_the_same_model(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert make(tmp_path / name, seed, QUICK) == 0.0
    first, again, other = (load_weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_a_target_out_of_reach_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no pass rate"):
        make(tmp_path / "a", 0, Recipe(batch_size=4, max_updates=1, num_held_back=4))
    assert not (tmp_path / "a").exists()
