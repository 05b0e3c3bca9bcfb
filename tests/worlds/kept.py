"""Honest submissions on a slow model, generated once and kept on disk between runs.

In: a `World`, a task's counter, a batch size. Out: its rollouts, as the world's engine and prover made them. What they
depend on names the file: weights, rules, precision, batch and the code that draws tokens. Kept beside the models
(`tests/models/smollm2.py`), by `tests/attacks/cache.py`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from protocol.rollouts import Rollout
from protocol.weights import WEIGHTS_FILE
from tests.attacks.cache import Cache
from tests.models.smollm2 import models_dir
from tests.unit.verifier.verifier_world import World

ROOT = Path(__file__).resolve().parents[2]
DRAWING_CODE = ("forward.py", "kv_cache.py", "sampling.py", "engines/torch.py")


def kept_rollouts(world: World, counter: int, max_batch: int = 32) -> list[Rollout]:
    """The rows of task `counter`, from the disk if they were made before."""
    names = (world.rules.rules_hash, world.dtype, counter, max_batch, _digest(world.folder))
    description = " ".join(str(name) for name in names)
    cache = Cache(models_dir().parent / "rollouts")
    return cache.get(description, lambda: world.rollouts(world.completions(counter, max_batch=max_batch), counter))


def _digest(folder: Path) -> str:
    """SHA-256 over the weights and the code that draws."""
    files = [folder / WEIGHTS_FILE, *(ROOT / "protocol" / name for name in DRAWING_CODE)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
