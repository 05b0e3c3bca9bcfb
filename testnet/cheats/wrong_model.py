"""Generates with another checkpoint than the policy version that it names, and proves honestly what that one did.

What it saves in earnest: a smaller or quantised model. Caught by: TOPLOC and the sampling margin.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from protocol.tokenizer import TOKENIZER_FILE
from protocol.weights import ModelConfig, load_weights, save_checkpoint
from protocol.weights_parts import WEIGHTS_FILE
from testnet.cheats.dishonest import Dishonest
from testnet.plan import BASE_MODEL, OTHER_WEIGHTS
from verifier.calibration.deviations import rounded

WEIGHT_BITS = 4
"""What a model that isn't the testnet's own is rounded to: there is no other one of its shape at hand."""


class WrongModel(Dishonest):
    """Loads the other model once, and keeps it whatever version is asked for."""

    def load_weights(self, policy_version: int) -> None:
        if self._loaded_version is None:
            with tempfile.TemporaryDirectory() as scratch:
                self.engine.load(other_model(self.weights.fetch(policy_version), Path(scratch) / "model"))
        self._loaded_version = policy_version


def other_model(folder: Path, out: Path) -> Path:
    """Another model of the same shape, in the new folder `out`: other training, or fewer bits."""
    shape = ModelConfig.load(folder)
    if shape.weight_shapes() == ModelConfig.load(BASE_MODEL).weight_shapes():
        shutil.copytree(folder, out)
        shutil.copyfile(OTHER_WEIGHTS, out / WEIGHTS_FILE)
    else:
        save_checkpoint(out, shape, rounded(load_weights(folder), WEIGHT_BITS), [folder / TOKENIZER_FILE])
    return out
