"""Generates with another checkpoint than the policy version that it names, and proves honestly what that one did.

What it saves in earnest: a smaller or quantised model. Caught by: TOPLOC and the sampling margin.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from protocol.weights import WEIGHTS_FILE
from testnet.cheats.dishonest import Dishonest
from testnet.plan import OTHER_WEIGHTS


class WrongModel(Dishonest):
    """Loads the other model once, and keeps it whatever version is asked for."""

    def load_weights(self, policy_version: int) -> None:
        if self._loaded_version is None:
            self._load_other(self.weights.fetch(policy_version))
        self._loaded_version = policy_version

    def _load_other(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            swapped = shutil.copytree(folder, Path(scratch) / "model")
            shutil.copyfile(OTHER_WEIGHTS, swapped / WEIGHTS_FILE)
            self.engine.load(swapped)
