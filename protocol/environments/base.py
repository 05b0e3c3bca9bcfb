"""What an environment is: problems by index, their prompts as tokens, and the reward of a completion.

    load(config, tokenizer) ─▶ Environment ─┬─ problem(index)  ─▶ Problem
                                            ├─ prompt(problem, target_length) ─▶ tokens
                                            └─ reward(problem, completion)    ─▶ task reward

Worker and verifier run the same environment: a problem follows from its index alone, so that a
prompt can be re-derived from a task's seed and a claimed reward re-computed. Everything that decides
either is under `environment_hash`, which goes into the pool's `rules_hash`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from protocol.canonical import canonical_hash
from protocol.chat_template import rendered, template_identity
from protocol.errors import ConfigError, UsageError
from protocol.randomness import SeedStream
from protocol.tokenizer import Tokenizer

PASS_REWARD = 1.0
NO_TARGET_LENGTH = -1
OPENS_THINKING, THOUGHT = "<think>", "</think>"
LATER_SETTINGS = ("only", "tiers", "chat_template", "system_prompt", "thinking")


def _in_order(numbers: tuple[int, ...]) -> tuple[int, ...]:
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise ValueError("the problems must be in rising order, each once")
    return numbers


Numbers = Annotated[tuple[NonNegativeInt, ...], AfterValidator(_in_order)]
"""Problems by their number in the environment, in rising order."""


class Tier(BaseModel):
    """Problems of like difficulty, and how often a group is of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    weight: int = Field(ge=1, lt=2**32)
    """Of the sum of all tiers' weights, the share of groups that draw from this one."""
    only: Annotated[Numbers, Field(min_length=1)]
    """Its problems, each as likely as the others."""


class EnvironmentConfig(BaseModel):
    """What every environment can be told. Unknown keys are errors.

    Example: `EnvironmentConfig(prompt_template="{question}\\n", reward="score")`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    prompt_template: str = "{question}"
    """The text put before the model, or with `chat_template` the user's message."""
    chat_template: bool = False
    """Put the text into the chat template that comes with the model's tokenizer (`protocol/chat_template.py`)."""
    system_prompt: str = ""
    """With `chat_template`, the system's message; empty: none."""
    length_suffix: str = ""
    """Appended where a target length is set, with {target} in it; empty: the prompt doesn't tell."""
    answer_marker: str = ""
    """The answer is what follows the last of these, white space stripped; empty: the whole completion."""
    thinking: Literal["optional", "required", "ignored"] = "optional"
    """Where the answer is looked for: after the last `</think>`, where a completion that opens `<think>` and doesn't
    close it has none; `required`: nor has one without `</think>`; `ignored`: anywhere."""
    only: Numbers = ()
    """The problems that are asked, by their number in the environment; empty: all (`proofpool trainer filter`)."""
    tiers: tuple[Tier, ...] = ()
    """In place of `only`: sets of problems that are asked as often as their weights say; no problem is in two."""
    reward: Literal["pass", "score"] = "pass"
    """`pass`: 1 for a score of exactly 1, else 0. `score`: the environment's own score, partial credit included."""

    @model_validator(mode="after")
    def _system_has_a_place(self) -> EnvironmentConfig:
        if self.system_prompt and not self.chat_template:
            raise ValueError("`system_prompt` has a place in chat templates only: set `chat_template` as well")
        return self

    @model_validator(mode="after")
    def _one_choice(self) -> EnvironmentConfig:
        if self.only and self.tiers:
            raise ValueError("`only` and `tiers` both choose the problems: set one of them")
        if len(set(self.chosen)) < len(self.chosen):
            raise ValueError("a problem is in two tiers")
        return self

    @property
    def chosen(self) -> tuple[int, ...]:
        """The problems that are asked, tier by tier; empty: all."""
        return self.only or tuple(number for tier in self.tiers for number in tier.only)


@dataclass(frozen=True)
class Problem:
    """One question. `entry` is what the environment needs to judge an answer; it never leaves the process.

    Example: `Problem(7, "chain_sum:7", "reasoning_gym/chain_sum", "57 + 87 =", {"answer": "144"})`.
    """

    index: int
    problem_id: str
    task_type: str
    question: str
    entry: dict[str, Any]


@dataclass(frozen=True)
class Judgement:
    """What an answer is worth, and what else an honest machine may have come to.

    A time limit judges by CPU seconds, which differ between machines: at its border `score` is 0, `other` the score
    that a faster machine gives, and nothing is `certain`.
    """

    score: float
    """0 to 1, exactly as float32 stores it."""
    other: float | None = None
    """As right a claim as `score`; None where there is no other."""
    certain: bool = True
    """Whether a claim of something else is false on every machine: only then can it be slashed."""

    def allows(self, claim: float) -> bool:
        return claim in (self.score, self.other)


class Environment(ABC):
    """Base of all environments; a subclass gives problems and scores, the rest is shared.

    `deterministic` states that `reward` is the same in every process on every machine: only then can
    a false claim be slashed. An environment whose `_judge` isn't certain of some answers says so of each.
    """

    deterministic: bool = True

    def __init__(self, config: EnvironmentConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer

    @property
    @abstractmethod
    def num_problems(self) -> int:
        """Training problems have the indexes 0 to `num_problems` - 1."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Package, version and whatever else decides problems and scores, as JSON."""

    @abstractmethod
    def _problem(self, index: int) -> Problem: ...

    @abstractmethod
    def _score(self, problem: Problem, answer: str | None) -> float:
        """The environment's own judgement of an answer, 0 to 1; None where the marker is missing."""

    @abstractmethod
    def held_back(self, count: int) -> list[Problem]:
        """The first `count` problems of the held-back range whose questions no training problem asks.

        Raises ConfigError where there are fewer.
        """

    def difficulty(self, problem: Problem) -> dict[str, float]:
        """What the environment itself says of how hard a problem is: numbers by name, none where it says nothing."""
        return {}

    @property
    def num_asked(self) -> int:
        """How many problems tasks draw from: all, or those that the configuration names."""
        return len(self._chosen) or self.num_problems

    @cached_property
    def _chosen(self) -> tuple[int, ...]:
        return self.config.chosen

    def draw(self, stream: SeedStream) -> Problem:
        """The problem that a group asks: any, or where there are tiers, any of the tier that is drawn first."""
        if not self.config.tiers:
            return self.asked(stream.below(self.num_asked))
        ticket = stream.below(sum(tier.weight for tier in self.config.tiers))
        for tier in self.config.tiers:
            if ticket < tier.weight:
                break
            ticket -= tier.weight
        return self.problem(tier.only[stream.below(len(tier.only))])

    def asked(self, place: int) -> Problem:
        """One of the problems that are asked, by its place; raises UsageError outside 0 to `num_asked` - 1."""
        if not self._chosen:
            return self.problem(place)
        if not 0 <= place < self.num_asked:
            raise UsageError("no such problem", f"number {place} of {self.num_asked}")
        return self.problem(self._chosen[place])

    def problem(self, index: int) -> Problem:
        """The training problem with this index; raises UsageError outside 0 to `num_problems` - 1."""
        if not 0 <= index < self.num_problems:
            raise UsageError("no such problem", f"index {index} of {self.num_problems}")
        return self._problem(index)

    def prompt(self, problem: Problem, target_length: int = NO_TARGET_LENGTH) -> list[int]:
        """The prompt's tokens; `target_length` in tokens is told to the model if `length_suffix` says how."""
        text = self.prompt_text(problem, target_length)
        tokens, bos = self.tokenizer.encode(text), self.tokenizer.bos_id
        # A chat template may spell the BOS token out.
        return tokens if bos is None or tokens[:1] == [bos] else [bos, *tokens]

    def prompt_text(self, problem: Problem, target_length: int = NO_TARGET_LENGTH) -> str:
        """What `prompt` encodes; raises ConfigError where the chat template can't be rendered."""
        text = self.config.prompt_template.replace("{question}", problem.question)
        if target_length != NO_TARGET_LENGTH:
            text += self.config.length_suffix.replace("{target}", str(target_length))
        if not self.config.chat_template:
            return text
        system = self._system(problem)
        first = [{"role": "system", "content": system}] if system else []
        return rendered(self.tokenizer, [*first, {"role": "user", "content": text}])

    def _system(self, problem: Problem) -> str:
        """The system's message of a chat template; empty: none."""
        return self.config.system_prompt

    def reward(self, problem: Problem, completion: Sequence[int]) -> float:
        """The task reward of completion tokens (with or without the final EOS), exactly as float32 stores it."""
        return self.judge(problem, completion).score

    def judge(self, problem: Problem, completion: Sequence[int]) -> Judgement:
        """The task reward, with what else an honest worker may claim."""
        return self.reward_of(self.judge_text(problem, self.tokenizer.decode(completion)))

    def reward_of(self, judgement: Judgement) -> Judgement:
        """What a judgement of the text is worth by the configuration: with `pass`, only a score of exactly 1."""
        if self.config.reward == "score":
            return judgement
        other = None if judgement.other is None else float(judgement.other == PASS_REWARD)
        return Judgement(float(judgement.score == PASS_REWARD), other, judgement.certain)

    def judge_fault(self) -> ConfigError | None:
        """What this machine lacks for judging answers, though problems can be had; None where it lacks nothing."""
        return None

    def judge_again(self, problem: Problem, completion: Sequence[int], found: Judgement) -> Judgement:
        """Asked before a claim that contradicts `found` counts against anybody: environments that run what a model
        wrote look again, and allow both where it doesn't do the same each time."""
        return found

    def judge_text(self, problem: Problem, text: str) -> Judgement:
        """The environment's own judgement of a completion's text, its scores rounded to float32."""
        found = self._judge(problem, self.answer(text))
        other = None if found.other is None else _as_float32(found.other)
        return Judgement(_as_float32(found.score), other, found.certain)

    def score(self, problem: Problem, text: str) -> float:
        """The environment's own score of a completion's text, rounded to float32."""
        return self.judge_text(problem, text).score

    def is_pass(self, problem: Problem, completion: Sequence[int]) -> bool:
        """Whether the score is exactly 1, whatever `reward` is configured to be."""
        return self.score(problem, self.tokenizer.decode(completion)) == PASS_REWARD

    def answer(self, text: str) -> str | None:
        """The answer within a completion's text; None without a marker, or while it still thinks."""
        spoken = after_thinking(text, self.config.thinking)
        return None if spoken is None else self._answer(spoken)

    def _judge(self, problem: Problem, answer: str | None) -> Judgement:
        """For environments whose judgement may hang on the machine; elsewhere it is `_score`, and certain."""
        return Judgement(self._score(problem, answer))

    def _answer(self, spoken: str) -> str | None:
        """The answer within what follows the thinking."""
        if not self.config.answer_marker:
            return spoken.strip()
        _, marker, answer = spoken.rpartition(self.config.answer_marker)
        return answer.strip() if marker else None

    @cached_property
    def environment_hash(self) -> str:
        """Keccak-256 over identity, configuration, tokenizer, chat template (where it is used) and stop ids, 0x-hex."""
        document: dict[str, Any] = {
            "identity": self.identity(),
            "config": self.config.model_dump(mode="json", exclude=self._unset()),
            "tokenizer_hash": self.tokenizer.tokenizer_hash,
            "stop_ids": list(self.tokenizer.eos_ids),
        }
        if self.config.chat_template:
            document["chat_template"] = template_identity(self.tokenizer)
        return canonical_hash(document)

    def _unset(self) -> set[str]:
        """Settings that came later than others: at their defaults the hash is what it was before they came."""
        defaults = EnvironmentConfig()
        return {name for name in LATER_SETTINGS if getattr(self.config, name) == getattr(defaults, name)}


def after_thinking(text: str, thinking: Literal["optional", "required", "ignored"]) -> str | None:
    """What a completion says once it has thought; None where it never comes to that.

    >>> after_thinking("<think>1 or 2?</think>It is 2.", "optional")
    'It is 2.'
    """
    if thinking == "ignored":
        return text
    before, closed, after = text.rpartition(THOUGHT)
    spoken = after if closed else before + after
    if OPENS_THINKING in spoken or (thinking == "required" and not closed):
        return None
    return spoken


def _as_float32(score: float) -> float:
    return float(np.float32(score))
