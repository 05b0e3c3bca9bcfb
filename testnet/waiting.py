"""What a run waits for, in words, and since when: a run is never silent about it.

In: the tally. Out: a phrase that fits after "waiting for", without numbers that change by the second.
"""

from __future__ import annotations

from collections.abc import Collection

from protocol.clock import Clock
from testnet.tally import Tally


def awaited(
    tally: Tally, num_steps: int, idle: Collection[str], unslashed: Collection[str], at_work: Collection[str]
) -> str:
    """The next thing that has to happen.

    `idle` names workers that haven't handed anything in yet, `unslashed` cheats whose stake the chain hasn't taken yet,
    `at_work` workers that haven't ended.
    """
    if tally.policy_version is None:
        return "the first policy version"
    if not tally.leased:
        return "the first lease"
    if tally.policy_version < num_steps:
        step = tally.step + 1
        return f"the trainer to take step {step}" if tally.batches > tally.step else f"accepted groups for step {step}"
    if idle:
        return f"a first submission of {', '.join(idle)}"
    if tally.working:
        return "workers to finish the tasks at hand"
    if tally.unsettled:
        return "verdicts on the last submissions"
    if unslashed:
        return f"the slash of {', '.join(unslashed)}: a provider has time to appeal"
    if at_work:
        return f"{', '.join(at_work)} to end"
    return "nothing more"


class Awaited:
    """Example: `seconds = awaited.since("the first lease")`, again and again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._what = ""
        self._since = 0.0

    def since(self, what: str) -> float:
        """How many seconds it has been this that is waited for."""
        if what != self._what:
            self._what, self._since = what, self._clock.now()
        return self._clock.now() - self._since
