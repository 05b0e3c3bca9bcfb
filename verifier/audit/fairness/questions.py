"""What a leased task asks: how hard, how long. It follows from the log, so anybody can compute it, delivered or not.

    the pool's terms, the version's beacon, the lease's event ─▶ the task, whose id is the event's subject
    its seed ─▶ problems and target lengths ─▶ numbers

In: the log's copies of contract events, `task.leased` events, rules documents. Out: a mean over the task's groups for
each measure. A task that no terms and beacon in the log lead to is asked for nothing: it has no measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

from protocol.canonical import is_hash32
from protocol.environments.base import NO_TARGET_LENGTH, Environment, Problem
from protocol.environments.registry import environment_of, load_environment
from protocol.errors import ConfigError, NotFound
from protocol.prompts import group_question
from protocol.randomness import task_seed
from protocol.rules import Rules
from protocol.signing import SigningDomain
from protocol.tokenizer import Tokenizer
from protocol.wire import Address, Task, UInt64
from verifier.audit.log.event_data import EventData

QUESTION_CHARACTERS, TARGET_LENGTH, PROMPT_TOKENS = "question_characters", "target_length", "prompt_tokens"
MAX_TERMS = 64
"""Terms and beacons of a version that a task is tried with; those announced last come first."""
MAX_KEPT = 1 << 16
"""Problems whose difficulty is remembered."""
MAX_GROUPS = 1 << 12
"""Of a task that is looked at: a pool that names more would only keep its auditors busy."""

Measures = Mapping[str, float]


class Leased(EventData):
    """A lease as its event has it."""

    node: Address
    provider: Address
    policy_version: UInt64
    counter: UInt64
    deadline: UInt64


@dataclass
class TaskTerms:
    """What a task is made of besides its lease, newest last: rules and prices, and each version's beacons."""

    terms: list[tuple[str, int]] = field(default_factory=list)
    beacons: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def note(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Take in a contract's event."""
        if name == "PoolCreated" and isinstance(arguments.get("config"), dict):
            self._add_terms(arguments["config"])
        elif name == "TermsAnnounced":
            self._add_terms(arguments)
        elif name == "VersionSealed":
            self._add_beacon(arguments)

    def _add_terms(self, said: Mapping[str, Any]) -> None:
        rules_hash, price = said.get("rules_hash"), _number(said.get("price"))
        if isinstance(rules_hash, str) and is_hash32(rules_hash) and price is not None:
            self.terms.append((rules_hash, price))

    def _add_beacon(self, said: Mapping[str, Any]) -> None:
        version, block = _number(said.get("version")), _number(said.get("beacon_block"))
        beacon = said.get("beacon_hash")
        if version is not None and block is not None and isinstance(beacon, str) and is_hash32(beacon):
            self.beacons.setdefault(version, []).append((block, beacon))


@dataclass(frozen=True)
class Known:
    """A pool's rules, and the environment that they name; `unavailable` says why there is none here.

    `is_checked`: it was held against the hash in the rules, which takes the pool's tokenizer.
    """

    rules: Rules
    environment: Environment | None
    is_checked: bool
    unavailable: str = ""


@dataclass(frozen=True)
class Asked:
    """A lease's task, found again."""

    task: Task
    rules: Rules
    measures: Measures


class Questions:
    """Example: `questions.asked(task_id, leased).measures["num_terms"]`."""

    def __init__(
        self,
        pool_id: int,
        domain: SigningDomain,
        fetch_rules: Callable[[str], Rules],
        model: Path | None = None,
    ) -> None:
        """`model` is a folder with the pool's tokenizer."""
        self.terms = TaskTerms()
        self.known: dict[str, Known | None] = {}
        """By rules hash; None for rules that the coordinator doesn't have."""
        self._pool_id, self._domain, self._fetch_rules = pool_id, domain, fetch_rules
        self._tokenizer = Tokenizer.load(model) if model is not None else None
        self._of_problem = lru_cache(MAX_KEPT)(self._measure)

    def asked(self, task_id: str, leased: Leased) -> Asked | None:
        """None where the log doesn't lead to a task with this id."""
        for rules_hash, price_wei in self.terms.terms[: -MAX_TERMS - 1 : -1]:
            known = self._known(rules_hash)
            if known is None:
                continue
            for block, beacon in self.terms.beacons.get(leased.policy_version, [])[: -MAX_TERMS - 1 : -1]:
                task = self._task(leased, known.rules, price_wei, block, beacon)
                if task.id(self._domain) == task_id:
                    return Asked(task, known.rules, self._measures(task, known))
        return None

    def _task(self, leased: Leased, rules: Rules, price_wei: int, block: int, beacon: str) -> Task:
        return Task(
            pool_id=self._pool_id,
            policy_version=leased.policy_version,
            node=leased.node,
            counter=leased.counter,
            rules_hash=rules.rules_hash,
            beacon_block=block,
            beacon_hash=beacon,
            price_wei=price_wei,
            max_units=rules.max_units,
            deadline=leased.deadline,
        )

    def _known(self, rules_hash: str) -> Known | None:
        if rules_hash not in self.known:
            try:
                self.known[rules_hash] = self._load(self._fetch_rules(rules_hash))
            except NotFound:
                self.known[rules_hash] = None
        return self.known[rules_hash]

    def _load(self, rules: Rules) -> Known:
        """An environment that isn't installed here costs the measures, not the report."""
        if rules.groups_per_task > MAX_GROUPS:
            why = f"{rules.groups_per_task} groups a task, more than {MAX_GROUPS}"
            return Known(rules, None, is_checked=False, unavailable=why)
        try:
            if self._tokenizer is not None:
                environment = environment_of(rules.environment, self._tokenizer, judges=False)
                return Known(rules, environment, is_checked=True)
            environment = load_environment(rules.environment.name, rules.environment.config, _no_tokenizer())
        except ConfigError as error:
            return Known(rules, None, is_checked=False, unavailable=f"{error.what}: {error.why}")
        return Known(rules, environment, is_checked=False)

    def _measures(self, task: Task, known: Known) -> Measures:
        if known.environment is None:
            return {}
        seed = task_seed(task.pool_id, task.policy_version, task.node, task.counter, task.beacon_hash)
        values: dict[str, list[float]] = {}
        for group in range(known.rules.groups_per_task):
            problem, target_length = group_question(known.rules, known.environment, seed, group)
            for name, value in self._of_problem(task.rules_hash, problem.index, target_length):
                values.setdefault(name, []).append(value)
        return {name: fmean(some) for name, some in values.items()}

    def _measure(self, rules_hash: str, index: int, target_length: int) -> tuple[tuple[str, float], ...]:
        known = self.known[rules_hash]
        assert known is not None and known.environment is not None
        problem = known.environment.problem(index)
        return tuple(_measured(known.environment, problem, target_length, known.is_checked))


def _measured(
    environment: Environment, problem: Problem, target_length: int, has_tokenizer: bool
) -> Iterator[tuple[str, float]]:
    yield from environment.difficulty(problem).items()
    yield QUESTION_CHARACTERS, len(problem.question)
    if target_length != NO_TARGET_LENGTH:
        yield TARGET_LENGTH, target_length
    if has_tokenizer:
        yield PROMPT_TOKENS, len(environment.prompt(problem, target_length))


def _no_tokenizer() -> Tokenizer:
    """Stands in where problems are asked for, and no tokens. Raises ConfigError for any text."""
    return Tokenizer(Backend(WordLevel()), (0,), None, None)


def _number(text: object) -> int | None:
    """Of a contract's integer, which the log has as decimal text."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 39 else None
