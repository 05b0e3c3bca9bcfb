"""Which rollouts the model looks at: drawn by a beacon that came after the submission, so that no worker knows them.

In: the rules' audit policy, beacon(epoch), submission id, round. Out: rollout numbers, ascending; every seat of a
round has the same. With policy `all`, and for whoever checks a file of his own, all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from protocol.canonical import from_hex0x, keccak256
from protocol.checks.case import Case
from protocol.randomness import SeedStream
from protocol.rules import AuditRules
from protocol.stamp import StampPair

_LABEL = "audit"


@dataclass(frozen=True)
class Audit:
    """The rollouts that the model looks at first, and the tokens whose log-probs a work stamp asks for besides."""

    rollouts: tuple[int, ...]
    asked: tuple[StampPair, ...] = ()


Plan = Callable[[Case], Audit]
"""Called for files that pass all cheap checks only."""


def everything(case: Case) -> Audit:
    """The audit of every rollout."""
    return Audit(tuple(range(len(case.rollouts))))


def drawn_by(beacon_hash: str, submission_id: str, round_number: int) -> Plan:
    """The audit that the rules ask of a seat which this beacon drew for this submission."""

    def plan(case: Case) -> Audit:
        return Audit(drawn_rollouts(case.rules.audit, len(case.rollouts), beacon_hash, submission_id, round_number))

    return plan


def num_drawn(rules: AuditRules, num_rollouts: int) -> int:
    """How many rollouts a round looks at first."""
    if rules.policy == "all":
        return num_rollouts
    return min(num_rollouts, max(rules.min_rollouts, math.ceil(rules.share * num_rollouts)))


def drawn_rollouts(
    rules: AuditRules, num_rollouts: int, beacon_hash: str, submission_id: str, round_number: int
) -> tuple[int, ...]:
    """A draw without replacement: SeedStream(keccak256(beacon ‖ submission id ‖ uint256 round), "audit").

    Of the numbers 0 to R − 1 in a row, draw i swaps place i with place i + below(R − i); the first k are drawn.
    """
    words = from_hex0x(beacon_hash) + from_hex0x(submission_id) + round_number.to_bytes(32, "big")
    stream, numbers = SeedStream(keccak256(words), _LABEL), list(range(num_rollouts))
    num_wanted = num_drawn(rules, num_rollouts)
    if num_wanted == num_rollouts:
        return tuple(numbers)
    for place in range(num_wanted):
        other = place + stream.below(num_rollouts - place)
        numbers[place], numbers[other] = numbers[other], numbers[place]
    return tuple(sorted(numbers[:num_wanted]))
