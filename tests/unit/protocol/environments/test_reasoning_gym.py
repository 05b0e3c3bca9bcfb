"""reasoning_gym by configuration: problems by index, rewards, held-back problems, the hash."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.environments import packages
from protocol.environments.base import Problem
from protocol.environments.reasoning_gym import LISTED, RUNS_ANSWERS, UNSTABLE, ReasoningGym, load
from protocol.errors import ConfigError, UsageError
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import EOS_ID, make_tokenizer

MakeEnvironment = Callable[..., ReasoningGym]
NUMBERS = re.compile(r"\d+")


def wrong_problem(answer: str) -> Problem:
    return Problem(0, "chain_sum:0", "reasoning_gym/chain_sum", "", {"answer": answer})


def test_a_problem_follows_from_its_index_and_the_seed(make_environment: MakeEnvironment) -> None:
    first, again, other = make_environment(), make_environment(), make_environment(seed=9)
    forwards = [first.problem(i) for i in range(20)]
    assert forwards == [again.problem(i) for i in reversed(range(20))][::-1]
    assert forwards != [other.problem(i) for i in range(20)]
    assert forwards[3].problem_id == "chain_sum:3"
    assert forwards[3].task_type == "reasoning_gym/chain_sum"


def test_a_problem_says_how_hard_it_is(make_environment: MakeEnvironment) -> None:
    environment = make_environment()
    for problem in map(environment.problem, range(20)):
        numbers = NUMBERS.findall(problem.question)
        difficulty = {"num_digits": float(max(map(len, numbers))), "num_terms": float(len(numbers))}
        assert environment.difficulty(problem) == difficulty


@pytest.mark.parametrize(("dataset", "names"), [
    ("sudoku", ["empty"]), ("graph_color", ["num_vertices"]), ("letter_counting", []),
])  # fmt: skip
def test_only_what_a_dataset_tells_of_each_problem_is_difficulty(
    make_environment: MakeEnvironment, dataset: str, names: list[str]
) -> None:
    environment = make_environment(dataset=dataset, parameters={})
    assert list(environment.difficulty(environment.problem(0))) == names


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"difficulty": None}, {"difficulty": {"a": 1}, "a": "2"}, {"difficulty": {"a": 1}, "a": float("nan")}],
)
def test_metadata_without_numbers_are_no_difficulty(make_environment: MakeEnvironment, metadata: Any) -> None:
    problem = Problem(0, "x:0", "x", "", {"metadata": metadata})
    assert make_environment().difficulty(problem) == {}


@pytest.mark.parametrize("index", [-1, 500, 2**24])
def test_an_index_outside_the_training_range_is_refused(make_environment: MakeEnvironment, index: int) -> None:
    with pytest.raises(UsageError):
        make_environment().problem(index)


def test_a_pass_is_a_score_of_exactly_one(make_environment: MakeEnvironment, tokenizer: Tokenizer) -> None:
    environment = make_environment()
    problem = environment.problem(0)
    right, wrong = problem.entry["answer"], str(int(problem.entry["answer"]) + 1)
    for text, reward in {
        f"1+1=2;#{right}": 1.0,
        f"#{wrong};#{right}": 1.0,
        f"#{right};#{wrong}": 0.0,
        right: 0.0,
    }.items():
        assert environment.reward(problem, tokenizer.encode(text)) == reward, text
        assert environment.reward(problem, [*tokenizer.encode(text), EOS_ID]) == reward, text
        assert environment.is_pass(problem, tokenizer.encode(text)) == (reward == 1.0)


def test_partial_credit_counts_only_when_asked_for(make_environment: MakeEnvironment, tokenizer: Tokenizer) -> None:
    problem, completion = wrong_problem("12"), tokenizer.encode("#312")
    assert make_environment(reward="pass").reward(problem, completion) == 0.0
    partial = make_environment(reward="score").reward(problem, completion)
    assert 0 < partial < 1
    import numpy as np

    assert float(np.float32(partial)) == partial, "a claimed float32 reward compares equal"


def test_without_a_marker_the_whole_completion_is_the_answer(
    make_environment: MakeEnvironment, tokenizer: Tokenizer
) -> None:
    environment = make_environment(answer_marker="")
    assert environment.reward(wrong_problem("12"), tokenizer.encode("12")) == 1.0
    assert environment.reward(wrong_problem("12"), tokenizer.encode("#12")) == 0.0


@settings(max_examples=200, deadline=None)
@given(tokens=st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 29), max_size=80))
def test_any_completion_gets_a_reward_between_0_and_1(tokens: list[int]) -> None:
    environment = load({"dataset": "chain_sum", "answer_marker": "#", "reward": "score"}, TOKENIZER)
    assert 0.0 <= environment.reward(wrong_problem("7"), tokens) <= 1.0


TOKENIZER = Tokenizer(make_tokenizer(), [EOS_ID], None, 0)


def test_rewards_are_the_same_in_another_process(make_environment: MakeEnvironment, tokenizer: Tokenizer) -> None:
    program = (
        "from protocol.environments.reasoning_gym import load\n"
        "from protocol.tokenizer import Tokenizer\n"
        "from testnet.base_model.vocabulary import make_tokenizer\n"
        "t = Tokenizer(make_tokenizer(), [1], None, 0)\n"
        "e = load({'dataset': 'chain_sum', 'answer_marker': '#', 'reward': 'score'}, t)\n"
        "print([(p.question, e.reward(p, t.encode(f'#{i}'))) for i in range(40) for p in [e.problem(i)]],"
        " e.environment_hash)"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": "C", "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert outputs[0] == outputs[1]
    assert (
        load({"dataset": "chain_sum", "answer_marker": "#", "reward": "score"}, tokenizer).environment_hash
        in outputs[0]
    )


def test_held_back_problems_are_never_trained_on(make_environment: MakeEnvironment) -> None:
    environment = make_environment(num_problems=2_000)
    trained = {environment.problem(i).question for i in range(2_000)}
    held_back = environment.held_back(300)
    questions = [problem.question for problem in held_back]
    assert not trained & set(questions)
    assert len(set(questions)) == 300
    assert held_back == environment.held_back(300)


def test_a_dataset_with_few_questions_holds_back_what_it_has_and_no_more(tokenizer: Tokenizer) -> None:
    """Two digits, plus or minus: 200 questions, of which some hundred are for training."""
    config = {
        "dataset": "chain_sum",
        "parameters": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        "num_problems": 140,
    }
    environment = load(config, tokenizer)
    trained = {environment.problem(index).question for index in range(140)}
    left = environment.held_back(200 - len(trained))
    assert not trained & {problem.question for problem in left}
    with pytest.raises(ConfigError, match="hasn't got so many held-back problems") as error:
        environment.held_back(len(left) + 1)
    assert f"{len(left)} of {len(left) + 1} were found" in error.value.why


def test_a_held_back_range_within_the_training_range_is_refused(make_environment: MakeEnvironment) -> None:
    with pytest.raises(ConfigError, match="held-back"):
        make_environment(held_back_start=100)


def test_the_prompt_tells_a_target_length_where_the_template_does(make_environment: MakeEnvironment) -> None:
    silent, telling = make_environment(), make_environment(length_suffix=" {target}")
    problem = silent.problem(0)
    assert silent.prompt(problem, 25) == silent.prompt(problem) == telling.prompt(problem)
    assert telling.prompt(problem, 25) != telling.prompt(problem)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"num_problems": 501},
        {"answer_marker": "="},
        {"reward": "score"},
        {"prompt_template": "{question} "},
        {"parameters": {"min_terms": 3, "max_terms": 5}},
        {"dataset": "basic_arithmetic", "parameters": {}},
    ],
)
def test_every_setting_is_in_the_hash(make_environment: MakeEnvironment, changes: dict[str, Any]) -> None:
    assert make_environment().environment_hash == make_environment().environment_hash
    assert make_environment(**changes).environment_hash != make_environment().environment_hash


def test_the_tokenizer_and_its_stop_ids_are_in_the_hash(make_environment: MakeEnvironment) -> None:
    config = make_environment().config.model_dump()
    same = load(config, Tokenizer(make_tokenizer(), [EOS_ID], None, 0))
    stops = load(config, Tokenizer(make_tokenizer(), [EOS_ID, 2], None, 0))
    larger = make_tokenizer()
    larger.add_tokens(["word"])
    vocabulary = load(config, Tokenizer(larger, [EOS_ID], None, 0))
    assert same.environment_hash == make_environment().environment_hash
    assert len({same.environment_hash, stops.environment_hash, vocabulary.environment_hash}) == 3


def test_another_version_of_what_scores_is_another_hash(
    make_environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_environment()
    assert here.identity()["requirements"].keys() >= {"sympy", "zss", "magiccube"}
    hash_here = here.environment_hash
    real = packages.version
    monkeypatch.setattr(packages, "version", lambda name: "9" if name == "sympy" else real(name))
    assert make_environment().environment_hash != hash_here


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "no_such"}, "no_such"),
        ({"parameters": {"min_terms": 0}}, "min_terms"),
        ({"parameters": {"no_such": 0}}, "no_such"),
        ({"no_such": 1}, "no_such"),
        ({"num_problems": 0}, "num_problems"),
    ],
)
def test_a_wrong_configuration_names_what_is_wrong(
    make_environment: MakeEnvironment, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment(**changes)


@pytest.mark.parametrize("template", ["{question}", "<bos>{question}"])
def test_a_prompt_starts_with_one_bos_token(tokenizer: Tokenizer, template: str) -> None:
    backend = make_tokenizer()
    backend.add_special_tokens(["<bos>"])
    bos = backend.token_to_id("<bos>")
    with_bos = Tokenizer(backend, [EOS_ID], bos, None)
    environment = load({"dataset": "chain_sum", "prompt_template": template}, with_bos)
    prompt = environment.prompt(environment.problem(0))
    assert prompt == [bos, *tokenizer.encode(environment.problem(0).question)]


def test_a_dataset_that_runs_answers_as_code_is_refused(make_environment: MakeEnvironment) -> None:
    """The list is what the package's sources say: each scorer that evaluates the answer, and no other."""
    from reasoning_gym.factory import DATASETS

    evaluates = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(answer\b")
    scorers = {name: inspect.getsource(dataset.score_answer) for name, (dataset, _) in DATASETS.items()}
    assert {name for name, source in scorers.items() if evaluates.search(source)} == RUNS_ANSWERS
    for name in RUNS_ANSWERS:
        with pytest.raises(ConfigError, match="runs answers as code"):
            make_environment(dataset=name, parameters={})
    parts = [{"name": "chain_sum", "weight": 1}, {"name": "countdown", "weight": 1}]
    with pytest.raises(ConfigError, match="countdown"):
        make_environment(dataset="composite", parameters={"datasets": parts})


@pytest.mark.parametrize("score", [ValueError("no number"), float("nan"), 2.0, -1.0])
def test_an_answer_that_a_scorer_cant_judge_is_worth_nothing(
    make_environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch, score: Any
) -> None:
    environment = make_environment(reward="score")
    monkeypatch.setattr(environment._dataset, "score_answer", Mock(side_effect=[score]))
    assert environment.reward(environment.problem(0), [5, 6]) == 0.0


PARTS = [
    {"name": "chain_sum", "weight": 2, "config": {"max_terms": 3}},
    {"name": "gcd"},
    {"name": "letter_counting", "weight": 1},
]


def test_a_composite_asks_all_of_its_parts(make_environment: MakeEnvironment) -> None:
    environment = make_environment(dataset="composite", parameters={"datasets": PARTS}, answer_marker="")
    problems = [environment.problem(index) for index in range(60)]
    assert {problem.task_type for problem in problems} == {
        "reasoning_gym/chain_sum",
        "reasoning_gym/gcd",
        "reasoning_gym/letter_counting",
    }
    assert problems[3].problem_id == "composite:3"
    for problem in problems:
        assert environment.score(problem, problem.entry["answer"]) == 1.0
        assert environment.score(problem, problem.entry["answer"] + "1") < 1.0


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([{"name": "composite", "config": {"datasets": PARTS}}], "no part of a composite"),
        ([{"name": "no_such"}], "can't make 'composite'"),
        ([{"weight": 1}], "can't make 'composite'"),
        ([{"name": "gcd", "no_such": 1}], "can't make 'composite'"),
        ([{"name": "gcd", "weight": -1}], "can't make 'composite'"),
        ([], "can't make 'composite'"),
        (["gcd"], "can't make 'composite'"),
    ],
)
def test_a_composite_of_what_there_isnt_is_refused(
    make_environment: MakeEnvironment, parts: list[Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment(dataset="composite", parameters={"datasets": parts})


def test_a_dataset_that_differs_between_processes_is_refused(make_environment: MakeEnvironment) -> None:
    for name in UNSTABLE:
        with pytest.raises(ConfigError, match="isn't the same in every process"):
            make_environment(dataset=name, parameters={})
    with pytest.raises(ConfigError, match="ransom_note"):
        make_environment(dataset="composite", parameters={"datasets": [*PARTS, {"name": "ransom_note"}]})


@pytest.mark.parametrize("dataset", sorted(LISTED - {"acre"}))
def test_a_dataset_that_lists_its_items_holds_some_back(make_environment: MakeEnvironment, dataset: str) -> None:
    environment = make_environment(dataset=dataset, parameters={}, num_problems=30)
    trained = {environment.problem(index).question for index in range(30)}
    held_back = environment.held_back(20)
    assert not trained & {problem.question for problem in held_back}
    with pytest.raises(ConfigError, match="held-back") as error:
        environment.held_back(3_000)
    assert "lists its items" in error.value.why
