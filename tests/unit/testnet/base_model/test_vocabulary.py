"""The base model's tokenizer: lossless on prompts and solutions, and short."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.tokenizer import Tokenizer
from testnet.base_model.make import worked_solution
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, UNKNOWN, make_tokenizer
from testnet.task import testnet_environment as load_task

TOKENIZER = Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID)


def test_prompts_and_solutions_come_back_unchanged_and_are_short() -> None:
    environment = load_task(TOKENIZER)
    problems = [environment.problem(i) for i in range(400)]
    for problem in problems:
        prompt = environment.prompt(problem)
        solution = worked_solution(problem.entry["metadata"]["expression"])
        assert TOKENIZER.decode(prompt) == problem.question
        assert TOKENIZER.decode(TOKENIZER.encode(solution)) == solution
        assert environment.score(problem, solution) == 1.0
    lengths = [len(environment.prompt(problem)) for problem in problems]
    assert 17 <= sum(lengths) / len(lengths) <= 20
    solved = [len(TOKENIZER.encode(worked_solution(p.entry["metadata"]["expression"]))) + 1 for p in problems]
    assert 24 <= sum(solved) / len(solved) <= 30
    assert max(solved) > 32, "some completions cross a chunk of proof rows"


@given(st.text(alphabet="0123456789+-=;#", max_size=60))
def test_every_text_of_a_solution_s_alphabet_comes_back(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert TOKENIZER.decode(tokens) == text
    assert len(tokens) == len(text)


def test_other_words_are_unknown_but_never_an_error() -> None:
    tokenizer = make_tokenizer()
    assert set(tokenizer.encode("Hé, wörld \n", add_special_tokens=False).tokens) == {UNKNOWN}
