"""Generates with another checkpoint than the policy version that it names, and proves honestly what that one did.

What it saves in earnest: a smaller or quantised model. Caught by: TOPLOC and the sampling margin.
"""

from __future__ import annotations

from testnet.cheats.dishonest import Dishonest
from testnet.plan import OTHER_MODEL


class WrongModel(Dishonest):
    """Loads the other model once, and keeps it whatever version is asked for."""

    def load_weights(self, policy_version: int) -> None:
        if self._loaded_version is None:
            self.engine.load(OTHER_MODEL)
        self._loaded_version = policy_version
