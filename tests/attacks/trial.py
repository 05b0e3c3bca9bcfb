"""Every rollout and file of an attack, judged by the product's own checks.

In: an arena and an attack. Out: a `Trial`: what each rollout's file comes to by itself, and measurements that any file
of these rollouts can be judged by without the model. What a file is refused for before the model runs goes through
`verifier/pipeline.py`; what needs the model through `protocol/checks/stages.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

from protocol.checks.case import Case, Terms, open_case
from protocol.checks.measurements import Measurements
from protocol.checks.stages import CHEAP, COSTLY, worst
from protocol.prompts import Prompt
from protocol.reasons import Outcome
from protocol.rollouts import Rollout
from protocol.wire import CheckResult
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack
from tests.attacks.reading import renumbered
from verifier.case import Dossier, terms_of
from verifier.pipeline import Finding, examine

WHOLE_FILE = ("schema", "envelope", "duplicates")
"""Checks that refuse a file whatever its rows are."""


class NeedsModel(Exception):
    """All cheap checks have passed."""


@dataclass(frozen=True, eq=False)
class OneRow(Terms):
    """The terms of a file of one rollout, which is number `number` of its task."""

    number: int = 0

    def prompt_of(self, index: int) -> Prompt:
        return self.prompts[self.number // self.group_size]

    group_size: int = 1


@dataclass(frozen=True, eq=False)
class Tried:
    """One rollout. `is_altered`: an honest worker would have sent another; `refusal`: what a cheap check says of it."""

    rollout: Rollout
    is_altered: bool
    refusal: CheckResult | None
    found: Measurements | None


@dataclass(frozen=True, eq=False)
class Trial:
    """All rollouts of an attack. `refused`: the whole files' refusals, one a task, where there were any."""

    attack: Attack
    case: Case
    """Any case of the pool, for its terms."""
    rollouts: tuple[Tried, ...]
    refused: tuple[CheckResult, ...]
    _known: dict[tuple[Measurements, int], Measurements] = field(default_factory=dict)

    @cached_property
    def altered(self) -> list[Tried]:
        return [one for one in self.rollouts if one.is_altered]

    def judge(self, pool: Sequence[Tried]) -> CheckResult:
        """The result that decides about a file of these rollouts."""
        if self.refused:
            return worst(self.refused)
        refusals = [one.refusal for one in pool if one.refusal is not None]
        if refusals:
            return worst(refusals)
        return self._costly(pool)

    def _costly(self, pool: Sequence[Tried]) -> CheckResult:
        """The worst that a check which needs the model says of a file of these rollouts: at the latest a slash."""
        parts = [self._placed(one.found, number) for number, one in enumerate(pool) if one.found is not None]
        rows = tuple(one.rollout for one in pool)
        case = replace(self.case, rollouts=rows, measurements=Measurements.joined(parts))
        results: list[CheckResult] = []
        for check in COSTLY:
            results.append(check(case))
            if results[-1].outcome == Outcome.SLASH:
                break
        return worst(results)

    def _placed(self, found: Measurements, number: int) -> Measurements:
        """`found` as rollout `number` of a file; resampling asks for the same again and again."""
        if (found, number) not in self._known:
            self._known[found, number] = renumbered(found, number)
        return self._known[found, number]


def tried(arena: Arena, attack: Attack, counters: Sequence[int] | None = None) -> Trial:
    """Play the attack on these tasks, on those that the arena has for it if there are none named."""
    rollouts: list[Tried] = []
    refused: list[CheckResult] = []
    for counter in arena.counters(attack) if counters is None else counters:
        dossier = attack.dossier(arena, counter)
        finding = cheaply(arena, attack, dossier)
        if finding is not None and finding.evidence.checks[-1].check in WHOLE_FILE:
            refused.append(finding.evidence.checks[-1])
            rollouts += [replace(one, is_altered=True) for one in _honest(arena, counter)]
        else:
            rollouts += _each(arena, counter, attack, dossier)
    honest = arena.world.case(Attack("", "").rows(arena, 0), 0)
    return Trial(attack, honest, tuple(rollouts), tuple(refused))


def cheaply(arena: Arena, attack: Attack, dossier: Dossier) -> Finding | None:
    """The pipeline's finding where it needs no model."""
    twin = attack.find_twin(arena)
    try:
        return examine(dossier, arena.world.instruments(load_model=_no_model, find_twin=twin))
    except NeedsModel:
        return None


def _no_model() -> NoReturn:
    raise NeedsModel


def _honest(arena: Arena, counter: int) -> list[Tried]:
    return [Tried(row, False, None, None) for row in Attack("", "").rows(arena, counter)]


def _each(arena: Arena, counter: int, attack: Attack, dossier: Dossier) -> list[Tried]:
    case = open_case(dossier.file, terms_of(dossier, arena.world.instruments()))
    refusals = [_alone(case, number) for number in range(len(case.rollouts))]
    honest = Attack("", "").rows(arena, counter)
    found: list[Measurements | None] = [None] * len(case.rollouts)
    if any(refusal is None for refusal in refusals):
        readings = arena.read(counter, case.rollouts)
        for number, (row, refusal) in enumerate(zip(case.rollouts, refusals, strict=True)):
            if refusal is None:
                found[number] = readings[number].against(arena.world, number, row.proofs)
    return [
        Tried(row, attack.is_lie(row, honest[number]), refusals[number], found[number])
        for number, row in enumerate(case.rollouts)
    ]


def _alone(case: Case, number: int) -> CheckResult | None:
    """What the cheap checks refuse in a file of this rollout alone."""
    terms, rules = case.terms, case.rules.model_copy(update={"group_size": 1, "groups_per_task": 1})
    shared = {name: getattr(terms, name) for name in ("environment", "model_config", "seed", "policy_version")}
    one = OneRow(rules, max_units=rules.max_units, number=number, group_size=case.rules.group_size, **shared)
    one.__dict__["prompts"] = terms.prompts
    header = case.header.model_copy(update={"group_size": 1})
    alone = Case(one, header, case.rollouts[number : number + 1])
    for check in CHEAP:
        result = check(alone)
        if result.outcome != Outcome.ACCEPT:
            return result
    return None
