"""What all environments share: thinking, chat templates, judgements at a border, the hash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.environments.base import Environment, Judgement, after_thinking
from protocol.environments.reasoning_gym import ReasoningGym, load
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer

MakeEnvironment = Callable[..., ReasoningGym]
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


@pytest.mark.parametrize(
    ("text", "optional", "required"),
    [
        ("5", "5", None),
        ("<think>4?</think>5", "5", "5"),
        ("4?</think>5", "5", "5"),
        ("<think>4?</think><think>3?</think>5", "5", "5"),
        ("4</think>", "", ""),
        ("<think>4", None, None),
        ("<think>4?</think>5<think>6", None, None),
        ("", "", None),
    ],
)
def test_the_answer_comes_after_the_thinking(text: str, optional: str | None, required: str | None) -> None:
    assert after_thinking(text, "optional") == optional
    assert after_thinking(text, "required") == required
    assert after_thinking(text, "ignored") == text


def test_what_is_thought_is_no_answer(make_environment: MakeEnvironment) -> None:
    environment = make_environment()
    problem = environment.problem(0)
    right = problem.entry["answer"]
    assert environment.score(problem, f"<think>#0</think>#{right}") == 1.0
    assert environment.score(problem, f"<think>#{right}</think>#0") == 0.0
    assert environment.score(problem, f"<think>#{right}") == 0.0
    assert make_environment(thinking="ignored").score(problem, f"<think>#{right}") == 1.0


def test_a_chat_templates_prompt_tells_system_question_and_length(tokenizer: Tokenizer) -> None:
    chatty = Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID, TEMPLATE)
    config = {
        "dataset": "chain_sum",
        "chat_template": True,
        "system_prompt": "Be brief.",
        "length_suffix": " ({target})",
    }
    environment = load(config, chatty)
    problem = environment.problem(0)
    assert environment.prompt_text(problem, 25) == (f"[system] Be brief.\n[user] {problem.question} (25)\n[assistant] ")
    silent = load({**config, "system_prompt": ""}, chatty)
    assert silent.prompt_text(problem) == f"[user] {problem.question}\n[assistant] "
    with pytest.raises(ConfigError, match="no chat template"):
        load(config, tokenizer).prompt(problem)
    with pytest.raises(ConfigError, match="system_prompt"):
        load({**config, "chat_template": False}, chatty)


def test_the_chat_template_is_in_the_hash_where_it_is_used(tokenizer: Tokenizer) -> None:
    first, second = (Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID, text) for text in (TEMPLATE, TEMPLATE + " "))
    plain, chat = {"dataset": "chain_sum"}, {"dataset": "chain_sum", "chat_template": True}
    assert load(plain, first).environment_hash == load(plain, second).environment_hash
    hashes = {
        load(chat, first).environment_hash,
        load(chat, second).environment_hash,
        load(plain, first).environment_hash,
    }
    assert len(hashes) == 3


@pytest.mark.parametrize("changes", [{"thinking": "required"}, {"thinking": "ignored"}])
def test_later_settings_are_in_the_hash(make_environment: MakeEnvironment, changes: dict[str, Any]) -> None:
    assert make_environment(**changes).environment_hash != make_environment().environment_hash


class Border(ReasoningGym):
    """An environment whose judge ran into a time limit's border."""

    found = Judgement(0.0, other=0.1, certain=False)

    def _judge(self, problem: Any, answer: str | None) -> Judgement:
        return self.found


def test_at_the_border_both_sides_are_right(make_environment: MakeEnvironment) -> None:
    config = make_environment().config
    environment: Environment = Border(config.model_copy(update={"reward": "score"}), make_environment().tokenizer)
    judgement = environment.judge(environment.problem(0), [5])
    assert judgement.allows(0.0) and judgement.allows(judgement.other or 1) and not judgement.allows(1.0)
    assert judgement.other != 0.1, "float32, as claims are"
    assert not judgement.certain
    assert environment.reward(environment.problem(0), [5]) == 0.0
    passes = Border(config, environment.tokenizer).judge(environment.problem(0), [5])
    assert passes == Judgement(0.0, other=0.0, certain=False), "a tenth is no pass on either side"


def test_a_certain_judgement_allows_nothing_else(make_environment: MakeEnvironment) -> None:
    environment = make_environment()
    problem = environment.problem(0)
    judgement = environment.judge(problem, environment.tokenizer.encode("#" + problem.entry["answer"]))
    assert judgement == Judgement(1.0) and judgement.allows(1.0) and not judgement.allows(0.0)
