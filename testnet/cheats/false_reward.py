"""Claims that every completion passed.

What it gains in earnest: influence on the training, or pay where pay depends on reward. Caught by: the
environment, run again.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.engines.base import Completion
from testnet.cheats.dishonest import Dishonest
from worker.work import Work


class FalseReward(Dishonest):
    """Rewards itself."""

    def rewards(self, work: Work, completions: Sequence[Completion]) -> list[float]:
        return [1.0] * len(completions)
