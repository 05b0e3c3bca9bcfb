"""What the verdicts on one submission add up to. Pure: no database, no clock.

In: the verdicts revealed so far and the pool's quorums. Out: accept, reject, or how many are needed.
All of one mind: `accept_quorum` of them settle it, `slash_quorum` where any says slash. A split goes on to at
least three and is settled by the majority; a tie asks for one more. "Not looked at" is never "accepted".
A re-audit (round 1) adds its verdicts to those of round 0, under the same rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.reasons import Outcome

SPLIT_QUORUM = 3


@dataclass(frozen=True)
class Opinion:
    """One verdict: an outcome, and its reason where it isn't accept."""

    outcome: Outcome
    reason: str | None = None

    @property
    def accepts(self) -> bool:
        return self.outcome is Outcome.ACCEPT


@dataclass(frozen=True)
class Decision:
    """`accepted` is None while it takes `num_needed` verdicts in all to know."""

    accepted: bool | None
    num_needed: int
    reason: str | None = None


def decide(opinions: Sequence[Opinion], accept_quorum: int, slash_quorum: int) -> Decision:
    """The decision that these verdicts, in drawn order, lead to.

    >>> decide([Opinion(Outcome.ACCEPT)], accept_quorum=1, slash_quorum=2).accepted
    True
    >>> decide([Opinion(Outcome.SLASH, "wrong_prompts")], accept_quorum=1, slash_quorum=2).num_needed
    2
    """
    num_accepts = sum(opinion.accepts for opinion in opinions)
    num_rejects = len(opinions) - num_accepts
    slashing = any(opinion.outcome is Outcome.SLASH for opinion in opinions)
    quorum = slash_quorum if slashing and num_rejects > num_accepts else accept_quorum
    if num_accepts and num_rejects:
        tie = num_accepts == num_rejects
        missing = max(0, quorum - max(num_accepts, num_rejects))
        num_needed = max(SPLIT_QUORUM, len(opinions) + max(tie, missing))
    else:
        num_needed = max(1, quorum)
    if len(opinions) < num_needed:
        return Decision(None, num_needed)
    accepted = num_accepts > num_rejects
    return Decision(accepted, num_needed, None if accepted else _commonest_reason(opinions))


def decide_again(
    first: Sequence[Opinion],
    second: Sequence[Opinion],
    accept_quorum: int,
    slash_quorum: int,
    *,
    num_wanted: int = 1,
    is_contested: bool = False,
) -> Decision:
    """The decision that round 1's verdicts lead to, on top of round 0's: at least `num_wanted`, and one more while a
    work stamp is contested.

    >>> decide_again([Opinion(Outcome.ACCEPT)], [], accept_quorum=1, slash_quorum=2).num_needed
    2
    """
    opinions = [*first, *second]
    decision = decide(opinions, accept_quorum, slash_quorum)
    num_needed = max(decision.num_needed, len(first) + num_wanted, len(opinions) + is_contested)
    return decision if len(opinions) >= num_needed else Decision(None, num_needed)


def _commonest_reason(opinions: Sequence[Opinion]) -> str | None:
    """The reason that most rejecting seats give; among equals, the one that was drawn first."""
    reasons = Counter(opinion.reason for opinion in opinions if not opinion.accepts)
    return reasons.most_common(1)[0][0]
